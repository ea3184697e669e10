package vela.compat;

import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionType;

/** Acks of every kind and what comes again without them, with the redelivery count. */
final class Acknowledgement {
    private static final int GROUPING_MILLIS = 400;

    private Acknowledgement() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("individual-ack", Acknowledgement::individual);
        scenarios.put("cumulative-ack", Acknowledgement::cumulative);
        scenarios.put("batch-index-ack", Acknowledgement::batchIndex);
        scenarios.put("ack-with-receipt", Acknowledgement::receipt);
        scenarios.put("negative-ack", Acknowledgement::negative);
        scenarios.put("ack-timeout", Acknowledgement::timeout);
        scenarios.put("redeliver-unacknowledged", Acknowledgement::redeliver);
        scenarios.put("dead-letter-topic", Acknowledgement::deadLetter);
    }

    private static void individual(Stage stage) throws Exception {
        for (SubscriptionType type : SubscriptionType.values()) {
            String topic = stage.topic(type.name());
            Consumer<byte[]> consumer = stage.consumer(topic, type).subscribe();
            Stage.send(stage.producer(topic).create(), "message ", 10);
            List<Message<byte[]>> got = Stage.receive(consumer, 10);
            for (int index : new int[] {0, 1, 4, 7}) {
                consumer.acknowledge(got.get(index));
            }
            Thread.sleep(GROUPING_MILLIS);
            consumer.close();
            Consumer<byte[]> again = stage.consumer(topic, type).subscribe();
            for (Message<byte[]> message : Stage.receiveAndAck(again, 6)) {
                stage.seeMessage(type + " came again", message);
            }
            stage.see("more", Stage.texts(Stage.untilSilence(again, 500)));
        }
    }

    private static void cumulative(Stage stage) throws Exception {
        for (boolean batched : new boolean[] {false, true}) {
            String topic = stage.topic("batched-" + batched);
            Consumer<byte[]> consumer = consumer(stage, topic, SubscriptionType.Exclusive);
            Producer<byte[]> producer = batches(stage, topic, batched);
            Stage.send(producer, "message ", 10);
            List<Message<byte[]>> got = Stage.receive(consumer, 10);
            consumer.acknowledgeCumulative(got.get(6));
            consumer.acknowledgeCumulative(got.get(3));
            Thread.sleep(GROUPING_MILLIS);
            consumer.close();
            Consumer<byte[]> again = consumer(stage, topic, SubscriptionType.Exclusive);
            stage.see("came again", Stage.gets(again, 3, 700));
        }
        Consumer<byte[]> shared = consumer(stage, stage.topic("s"), SubscriptionType.Shared);
        Stage.send(stage.producer(stage.topic("s")).create(), "x", 1);
        Message<byte[]> message = Stage.receive(shared, 1).get(0);
        stage.seeError("cumulative on Shared", () -> {
            shared.acknowledgeCumulative(message);
            return null;
        });
    }

    private static void batchIndex(Stage stage) throws Exception {
        for (SubscriptionType type : SubscriptionType.values()) {
            String topic = stage.topic(type.name());
            Consumer<byte[]> consumer = consumer(stage, topic, type);
            Stage.send(batches(stage, topic, true), "message ", 20);
            List<Message<byte[]>> got = Stage.receive(consumer, 20);
            for (int index : new int[] {0, 2, 3, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}) {
                consumer.acknowledge(got.get(index));
            }
            Thread.sleep(GROUPING_MILLIS);
            consumer.close();
            Consumer<byte[]> again = consumer(stage, topic, type);
            for (Message<byte[]> message : Stage.receiveAndAck(again, 6)) {
                stage.seeMessage(type + " came again", message);
            }
            stage.see("more", Stage.texts(Stage.untilSilence(again, 500)));
        }
    }

    private static void receipt(Stage stage) throws Exception {
        Consumer<byte[]> consumer = stage.consumer(stage.topic(), SubscriptionType.Shared)
                .isAckReceiptEnabled(true)
                .subscribe();
        Stage.send(stage.producer(stage.topic()).create(), "message ", 10);
        List<Message<byte[]>> got = Stage.receive(consumer, 10);
        for (int i = 0; i < 5; i++) {
            consumer.acknowledgeAsync(got.get(i)).get(10, TimeUnit.SECONDS);
        }
        consumer.acknowledgeAsync(got.subList(5, 8).stream().map(Message::getMessageId).toList())
                .get(10, TimeUnit.SECONDS);
        consumer.close();
        Consumer<byte[]> again = stage.consumer(stage.topic(), SubscriptionType.Shared).subscribe();
        stage.see("came again", Stage.gets(again, 2, 700));
    }

    private static void negative(Stage stage) throws Exception {
        for (SubscriptionType type : SubscriptionType.values()) {
            for (boolean batched : new boolean[] {false, true}) {
                String topic = stage.topic(type.name() + batched);
                Consumer<byte[]> consumer = stage.consumer(topic, type)
                        .negativeAckRedeliveryDelay(200, TimeUnit.MILLISECONDS)
                        .enableBatchIndexAcknowledgment(true)
                        .subscribe();
                Stage.send(batches(stage, topic, batched), "message ", 4);
                for (int turn = 0; turn < 3; turn++) {
                    List<Message<byte[]>> got = Stage.receive(consumer, 4);
                    got.sort(Comparator.comparing(Stage::text));
                    for (Message<byte[]> message : got) {
                        stage.seeMessage(type + " turn " + turn, message);
                        if (turn < 2) {
                            consumer.negativeAcknowledge(message);
                        } else {
                            consumer.acknowledge(message);
                        }
                    }
                }
                stage.see("more", Stage.texts(Stage.untilSilence(consumer, 500)));
                consumer.close();
            }
        }
    }

    private static void timeout(Stage stage) throws Exception {
        Consumer<byte[]> consumer = stage.consumer(stage.topic(), SubscriptionType.Shared)
                .ackTimeout(2, TimeUnit.SECONDS)
                .subscribe();
        Stage.send(stage.producer(stage.topic()).create(), "message ", 3);
        List<Message<byte[]>> got = Stage.receive(consumer, 3);
        consumer.acknowledge(got.get(1));
        List<Message<byte[]>> again = Stage.receiveAndAck(consumer, 2);
        again.sort(Comparator.comparing(Stage::text));
        for (Message<byte[]> message : again) {
            stage.seeMessage("came again", message);
        }
        stage.see("more", Stage.texts(Stage.untilSilence(consumer, 3500)));
    }

    private static void redeliver(Stage stage) throws Exception {
        for (SubscriptionType type : SubscriptionType.values()) {
            String topic = stage.topic(type.name());
            Consumer<byte[]> consumer = stage.consumer(topic, type).subscribe();
            Stage.send(stage.producer(topic).create(), "message ", 6);
            List<Message<byte[]>> got = Stage.receive(consumer, 6);
            consumer.acknowledge(got.get(0));
            consumer.acknowledge(got.get(3));
            Thread.sleep(GROUPING_MILLIS);
            consumer.redeliverUnacknowledgedMessages();
            List<Message<byte[]>> again = Stage.receiveAndAck(consumer, 4);
            again.sort(Comparator.comparing(Stage::text));
            for (Message<byte[]> message : again) {
                stage.seeMessage(type + " came again", message);
            }
            stage.see("more", Stage.texts(Stage.untilSilence(consumer, 500)));
        }
    }

    private static void deadLetter(Stage stage) throws Exception {
        Consumer<byte[]> dead = stage.subscribe(stage.topic("dead"));
        Consumer<byte[]> consumer = stage.consumer(stage.topic(), SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(200, TimeUnit.MILLISECONDS)
                .deadLetterPolicy(DeadLetterPolicy.builder()
                        .maxRedeliverCount(2)
                        .deadLetterTopic(stage.topic("dead"))
                        .build())
                .subscribe();
        Producer<byte[]> producer = stage.producer(stage.topic()).create();
        producer.newMessage().property("why", "bad").value(Stage.bytes("bad")).send();
        for (int i = 0; i < 3; i++) {
            Message<byte[]> message = Stage.receive(consumer, 1).get(0);
            stage.seeMessage("tried", message);
            consumer.negativeAcknowledge(message);
        }
        Message<byte[]> letter = Stage.receive(dead, 1).get(0);
        stage.see("dead letter", Stage.text(letter));
        stage.see("its properties", new TreeSet<>(letter.getProperties().keySet()));
        stage.see("more", Stage.texts(Stage.untilSilence(consumer, 700)));
    }

    private static Consumer<byte[]> consumer(Stage stage, String topic, SubscriptionType type)
            throws Exception {
        return stage.consumer(topic, type).enableBatchIndexAcknowledgment(true).subscribe();
    }

    private static Producer<byte[]> batches(Stage stage, String topic, boolean batched)
            throws Exception {
        return stage.producer(topic)
                .enableBatching(batched)
                .batchingMaxMessages(10)
                .batchingMaxPublishDelay(5, TimeUnit.SECONDS)
                .create();
    }
}
