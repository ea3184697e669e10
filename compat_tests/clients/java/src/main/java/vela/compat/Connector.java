package vela.compat;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderBuilder;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.impl.MessageIdImpl;

/**
 * What newer Spark connectors do with the Java client: the driver holds a durable consumer of any
 * schema per partition and seeks it at every commit; executors read with readers.
 */
final class Connector {
    private Connector() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("connector-driver-triggers", Connector::triggers);
        scenarios.put("connector-driver-partitions", Connector::partitions);
        scenarios.put("connector-driver-seeks-beyond-the-end", Connector::seeksBeyondTheEnd);
    }

    private static Consumer<GenericRecord> driver(Stage stage, String topic) throws Exception {
        return stage.client().newConsumer(Schema.AUTO_CONSUME())
                .topic(topic)
                .subscriptionName("spark-pulsar-7f0c-" + topic)
                .subscriptionType(SubscriptionType.Exclusive)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
    }

    private static MessageIdAdv last(Consumer<?> driver) throws Exception {
        return (MessageIdAdv) driver.getLastMessageIds().get(0);
    }

    /** What lies after start up to and with end. */
    private static List<String> batch(
            Stage stage, String topic, Schema<?> schema, MessageId start, MessageIdAdv end)
            throws Exception {
        List<String> read = new ArrayList<>();
        ReaderBuilder<?> builder = stage.client().newReader(schema)
                .topic(topic)
                .subscriptionRolePrefix("spark-pulsar-7f0c")
                .startMessageId(start == null ? MessageId.earliest : start)
                .startMessageIdInclusive();
        try (Reader<?> reader = builder.create()) {
            if (start != null) {
                MessageId first = next(reader).getMessageId();
                Stage.check(first.equals(start), "the batch starts elsewhere than the last ended");
            }
            MessageId at = start;
            while (!end.equals(at)) {
                Message<?> message = next(reader);
                Object value = message.getValue();
                read.add(value instanceof byte[] data ? Stage.textOf(data) : value.toString());
                at = message.getMessageId();
            }
        }
        return read;
    }

    private static Message<?> next(Reader<?> reader) throws Exception {
        Message<?> message = reader.readNext(Stage.RECEIVE_SECONDS, TimeUnit.SECONDS);
        Stage.check(message != null, "a message of the batch did not come");
        return message;
    }

    private static void triggers(Stage stage) throws Exception {
        for (boolean batched : new boolean[] {false, true}) {
            triggers(stage, stage.topic("avro-" + batched), Schema.AVRO(Schemas.Person.class),
                    number -> Schemas.Person.of("n" + number, number), batched);
            triggers(stage, stage.topic("bytes-" + batched), Schema.BYTES,
                    number -> Stage.bytes("" + number), batched);
        }
    }

    private interface Value<T> {
        T of(int number);
    }

    private static <T> void triggers(
            Stage stage, String topic, Schema<T> schema, Value<T> value, boolean batched)
            throws Exception {
        Producer<T> producer = stage.client().newProducer(schema)
                .topic(topic)
                .enableBatching(batched)
                .batchingMaxMessages(5)
                .batchingMaxPublishDelay(5, TimeUnit.SECONDS)
                .create();
        Consumer<GenericRecord> driver = driver(stage, topic);
        MessageIdAdv start = null;
        int sent = 0;
        for (int count : new int[] {7, 0, 1, 10, 5}) {
            for (int i = 0; i < count; i++) {
                producer.sendAsync(value.of(sent++));
            }
            producer.flush();
            MessageIdAdv end = last(driver);
            stage.see("last id", List.of(end.getBatchIndex(), end.getPartitionIndex()));
            stage.see("batch", batch(stage, topic, schema, start, end));
            driver.seek(end);
            start = end;
        }
        Message<GenericRecord> pushed = driver.receive(700, TimeUnit.MILLISECONDS);
        stage.see("pushed to the driver", pushed != null);
        driver.unsubscribe();
        stage.see("subscriptions left", subscriptions(stage, topic));
    }

    private static String subscriptions(Stage stage, String topic) throws Exception {
        String path = "/admin/v2/" + topic.replace("://", "/") + "/subscriptions";
        return stage.http("GET", path, null);
    }

    private static void partitions(Stage stage) throws Exception {
        stage.partition(stage.topic(), 2);
        for (int index = 0; index < 2; index++) {
            String topic = stage.topic() + "-partition-" + index;
            Consumer<GenericRecord> driver = driver(stage, topic);
            MessageIdAdv empty = last(driver);
            stage.see("empty", List.of(empty.getEntryId(), empty.getPartitionIndex()));
            Stage.send(stage.producer(topic).create(), "", 4);
            MessageIdAdv end = last(driver);
            stage.see("last id", List.of(end.getEntryId(), end.getPartitionIndex()));
            stage.see("batch", batch(stage, topic, Schema.BYTES, null, end));
            driver.seek(end);
            if (index == 0) {
                last(driver); // returns when the client is back after the seek
                driver.unsubscribe();
            }
            stage.see("subscriptions left", subscriptions(stage, topic));
        }
    }

    /** The first `count` different texts: around a seek or an unload one may come twice. */
    private static List<Message<byte[]>> receiveDistinct(Consumer<byte[]> consumer, int count)
            throws Exception {
        Map<String, Message<byte[]>> received = new LinkedHashMap<>();
        while (received.size() < count) {
            Message<byte[]> message = Stage.receive(consumer, 1).get(0);
            received.putIfAbsent(Stage.textOf(message.getData()), message);
        }
        return List.copyOf(received.values());
    }

    private static void seeksBeyondTheEnd(Stage stage) throws Exception {
        long[][] targets = {{0, 1}, {0, 1000}, {1, 0}, {100_000, 0}};
        for (boolean rolled : new boolean[] {false, true}) {
            for (long[] target : targets) {
                String topic = stage.topic(rolled + "-" + target[0] + "-" + target[1]);
                Producer<byte[]> producer = stage.producer(topic).create();
                Consumer<GenericRecord> driver = driver(stage, topic);
                Stage.send(producer, "before ", 3);
                MessageIdAdv end = last(driver);
                if (rolled) {
                    String path = "/admin/v2/" + topic.replace("://", "/") + "/unload";
                    stage.see("unload", stage.http("PUT", path, null));
                }
                long entry = target[0] == 0 ? end.getEntryId() + target[1] : target[1];
                seek(driver, new MessageIdImpl(end.getLedgerId() + target[0], entry, -1));
                stage.see("sought to " + target[0] + " " + target[1], null);
                driver.close();
                Stage.send(producer, "after ", 2);
                Consumer<byte[]> next = stage.client().newConsumer()
                        .topic(topic)
                        .subscriptionName("spark-pulsar-7f0c-" + topic)
                        .subscribe();
                stage.see("then", Stage.texts(receiveDistinct(next, 2)));
                next.close();
            }
        }
    }

    /** A client that was sent away connects again by itself, and may refuse a seek until then. */
    private static void seek(Consumer<?> driver, MessageId target) throws Exception {
        for (int attempt = 0; ; attempt++) {
            try {
                driver.seek(target);
                return;
            } catch (PulsarClientException refused) {
                if (attempt == 100) {
                    throw refused;
                }
                Thread.sleep(100);
            }
        }
    }
}
