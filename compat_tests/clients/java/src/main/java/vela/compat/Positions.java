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
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderBuilder;
import org.apache.pulsar.client.api.SubscriptionType;

/** Where reading starts: readers, seeks by id and by time, the last message id. */
final class Positions {
    private Positions() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("reader", Positions::reader);
        scenarios.put("reader-seek", Positions::readerSeek);
        scenarios.put("seek-by-id", Positions::seekById);
        scenarios.put("seek-by-time", Positions::seekByTime);
        scenarios.put("last-message-id", Positions::lastMessageId);
    }

    private static List<String> readAll(Reader<byte[]> reader) throws Exception {
        List<String> read = new ArrayList<>();
        while (reader.hasMessageAvailable()) {
            Message<byte[]> message = reader.readNext(Stage.RECEIVE_SECONDS, TimeUnit.SECONDS);
            Stage.check(message != null, "an available message did not come");
            read.add(Stage.text(message));
        }
        return read;
    }

    private static ReaderBuilder<byte[]> from(Stage stage, String topic, MessageId id)
            throws Exception {
        return stage.client().newReader().topic(topic).startMessageId(id);
    }

    private static Producer<byte[]> producer(Stage stage, String topic, boolean batched)
            throws Exception {
        return stage.producer(topic)
                .enableBatching(batched)
                .batchingMaxMessages(4)
                .batchingMaxPublishDelay(5, TimeUnit.SECONDS)
                .create();
    }

    private static void reader(Stage stage) throws Exception {
        for (boolean batched : new boolean[] {false, true}) {
            String topic = stage.topic("batched-" + batched);
            Producer<byte[]> producer = producer(stage, topic, batched);
            Stage.send(producer, "", 10);
            Reader<byte[]> first = from(stage, topic, MessageId.earliest).create();
            List<MessageId> ids = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                Message<byte[]> message = first.readNext(10, TimeUnit.SECONDS);
                stage.seeMessage("earliest", message);
                ids.add(message.getMessageId());
            }
            stage.see("more", first.hasMessageAvailable());
            for (int index : new int[] {0, 3, 5, 9}) {
                try (Reader<byte[]> after = from(stage, topic, ids.get(index)).create()) {
                    stage.see("after " + index, readAll(after));
                }
                try (Reader<byte[]> inclusive = from(stage, topic, ids.get(index))
                        .startMessageIdInclusive().create()) {
                    stage.see("from " + index, readAll(inclusive));
                }
            }
            Reader<byte[]> latest = from(stage, topic, MessageId.latest).create();
            stage.see("latest", readAll(latest));
            try (Reader<byte[]> last = from(stage, topic, MessageId.latest)
                    .startMessageIdInclusive().create()) {
                stage.see("latest inclusive", readAll(last));
            }
            try (Reader<byte[]> back = stage.client().newReader().topic(topic)
                    .startMessageFromRollbackDuration(1, TimeUnit.HOURS).create()) {
                stage.see("an hour back", readAll(back));
            }
            Stage.send(producer, "new ", 1);
            stage.see("latest then", Stage.text(latest.readNext(10, TimeUnit.SECONDS)));
        }
    }

    private static void readerSeek(Stage stage) throws Exception {
        Producer<byte[]> producer = stage.producer(stage.topic()).create();
        List<MessageId> ids = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            ids.add(producer.send(Stage.bytes("" + i)));
        }
        Reader<byte[]> reader = from(stage, stage.topic(), MessageId.earliest).create();
        stage.see("first", readAll(reader));
        for (Map.Entry<String, MessageId> target : targets(ids).entrySet()) {
            reader.seek(target.getValue());
            stage.see("after a seek to " + target.getKey(), readAll(reader));
        }
    }

    private static Map<String, MessageId> targets(List<MessageId> ids) {
        Map<String, MessageId> targets = new LinkedHashMap<>();
        targets.put("earliest", MessageId.earliest);
        targets.put("the fourth", ids.get(4));
        targets.put("the last", ids.get(9));
        targets.put("latest", MessageId.latest);
        return targets;
    }

    private static void seekById(Stage stage) throws Exception {
        for (SubscriptionType type : SubscriptionType.values()) {
            for (boolean batched : new boolean[] {false, true}) {
                String topic = stage.topic(type.name() + batched);
                Consumer<byte[]> consumer = stage.consumer(topic, type).subscribe();
                Producer<byte[]> producer = producer(stage, topic, batched);
                Stage.send(producer, "", 10);
                List<MessageId> ids = Stage.receiveAndAck(consumer, 10).stream()
                        .map(Message::getMessageId).toList();
                int[] counts = {10, 5, 0, 0};
                int step = 0;
                for (Map.Entry<String, MessageId> target : targets(ids).entrySet()) {
                    consumer.seek(target.getValue());
                    String what = type + " after a seek to " + target.getKey();
                    stage.see(what, Stage.texts(Stage.receiveAndAck(consumer, counts[step++])));
                    stage.see("more", Stage.texts(Stage.untilSilence(consumer, 300)));
                }
                Stage.send(producer, "new ", 1);
                stage.see("new", Stage.texts(Stage.receiveAndAck(consumer, 1)));
                consumer.close();
            }
        }
    }

    private static void seekByTime(Stage stage) throws Exception {
        Consumer<byte[]> consumer = stage.subscribe(stage.topic());
        Producer<byte[]> producer = stage.producer(stage.topic()).create();
        List<Long> moments = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            Thread.sleep(50);
            moments.add(System.currentTimeMillis());
            Thread.sleep(50);
            producer.send(Stage.bytes("" + i));
        }
        Stage.receiveAndAck(consumer, 4);
        moments.add(System.currentTimeMillis() + 60_000);
        moments.add(0L);
        int[] counts = {4, 3, 2, 1, 0, 4};
        for (int i = 0; i < counts.length; i++) {
            consumer.seek(moments.get(i));
            stage.see("moment " + i, Stage.texts(Stage.receiveAndAck(consumer, counts[i])));
            stage.see("more", Stage.texts(Stage.untilSilence(consumer, 400)));
        }
    }

    private static void lastMessageId(Stage stage) throws Exception {
        for (boolean batched : new boolean[] {false, true}) {
            String topic = stage.topic("batched-" + batched);
            Consumer<byte[]> consumer = stage.subscribe(topic);
            MessageIdAdv empty = (MessageIdAdv) consumer.getLastMessageIds().get(0);
            stage.see("empty topic", List.of(empty.getLedgerId(), empty.getEntryId()));
            Stage.send(producer(stage, topic, batched), "", 8);
            List<Message<byte[]>> got = Stage.receiveAndAck(consumer, 8);
            MessageIdAdv last = (MessageIdAdv) consumer.getLastMessageIds().get(0);
            stage.see("is the last received", last.equals(got.get(7).getMessageId()));
            stage.see("batch index", last.getBatchIndex());
            stage.see("entries", last.getEntryId() + 1);
        }
    }
}
