package vela.compat;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.TopicStats;

/** Topics: partitioned, several at once, by pattern, non-persistent, terminated. */
final class Topics {
    private static final int PERMITS_SECONDS_MAX = 30;
    private static final int LOOK_MILLIS = 50;

    private Topics() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("partitioned", Topics::partitioned);
        scenarios.put("several-topics", Topics::several);
        scenarios.put("topics-by-pattern", Topics::byPattern);
        scenarios.put("non-persistent", Topics::nonPersistent);
        scenarios.put("end-of-topic", Topics::endOfTopic);
    }

    private static void partitioned(Stage stage) throws Exception {
        String topic = stage.topic();
        stage.partition(topic, 4);
        List<String> partitions = stage.client().getPartitionsForTopic(topic).get();
        stage.see("partitions", partitions);
        Consumer<byte[]> consumer = stage.subscribe(topic);
        Producer<byte[]> producer = stage.producer(topic).create();
        for (int i = 0; i < 60; i++) {
            producer.newMessage().key("key-" + i % 12).value(Stage.bytes("" + i)).send();
        }
        Map<String, List<String>> order = new TreeMap<>();
        Map<String, Integer> placed = new TreeMap<>();
        for (Message<byte[]> message : Stage.receiveAndAck(consumer, 60)) {
            order.computeIfAbsent(message.getKey(), key -> new ArrayList<>())
                    .add(Stage.text(message));
            placed.put(message.getKey(), new IdFields(message.getMessageId()).partition());
        }
        stage.see("order within a key", order);
        stage.see("where each key went", placed);
        stage.seeError("a producer on a partition that is not there",
                () -> stage.producer(topic + "-partition-7").create());
    }

    private static void several(Stage stage) throws Exception {
        List<String> topics = List.of(stage.topic("0"), stage.topic("1"), stage.topic("2"));
        Consumer<byte[]> consumer = stage.client().newConsumer()
                .topics(topics).subscriptionName("s").subscribe();
        for (String topic : topics) {
            Stage.send(stage.producer(topic).create(), topic + " ", 5);
        }
        Map<String, List<String>> got = new TreeMap<>();
        for (Message<byte[]> message : Stage.receiveAndAck(consumer, 15)) {
            got.computeIfAbsent(message.getTopicName(), name -> new ArrayList<>())
                    .add(Stage.text(message));
        }
        stage.see("by topic", got);
    }

    private static void byPattern(Stage stage) throws Exception {
        for (String name : List.of("yes-0", "yes-1", "no-0")) {
            Stage.send(stage.producer(stage.topic(name)).create(), name + " ", 1);
        }
        Consumer<byte[]> consumer = stage.client().newConsumer()
                .topicsPattern(Pattern.compile(stage.topic("yes-.*")))
                .patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscriptionName("s")
                .subscribe();
        List<String> first = new ArrayList<>(Stage.texts(Stage.receiveAndAck(consumer, 2)));
        Collections.sort(first);
        stage.see("first", first);
        Stage.send(stage.producer(stage.topic("yes-late")).create(), "late ", 1);
        Stage.send(stage.producer(stage.topic("no-late")).create(), "other ", 1);
        stage.see("later", Stage.texts(Stage.receiveAndAck(consumer, 1)));
        stage.see("more", Stage.texts(Stage.untilSilence(consumer, 1000)));
    }

    private static void nonPersistent(Stage stage) throws Exception {
        String topic = stage.nonPersistentTopic();
        Producer<byte[]> producer = stage.producer(topic).create();
        producer.send(Stage.bytes("nobody is there"));
        Consumer<byte[]> consumer = stage.subscribe(topic);
        Consumer<byte[]> shared = stage.consumer(topic, SubscriptionType.Shared)
                .subscriptionName("shared").subscribe();
        untilPermits(stage, topic, 2);
        Stage.send(producer, "message ", 10);
        stage.see("exclusive", Stage.texts(Stage.receiveAndAck(consumer, 10)));
        stage.see("shared", Stage.texts(Stage.receiveAndAck(shared, 10)));
        consumer.close();
        producer.send(Stage.bytes("nobody is there again"));
        Consumer<byte[]> back = stage.subscribe(topic);
        stage.see("kept for it", Stage.texts(Stage.untilSilence(back, 400)));
        stage.seeError("exclusive beside it", () -> stage.subscribe(topic));
    }

    /**
     * Wait until that many consumers of the topic have permits. A client answers a subscribe before
     * its first permits reach the broker, and a non-persistent topic drops what comes earlier.
     */
    private static void untilPermits(Stage stage, String topic, int consumers) throws Exception {
        long deadline = System.nanoTime() + PERMITS_SECONDS_MAX * 1_000_000_000L;
        while (consumersWithPermits(stage.admin().topics().getStats(topic)) < consumers) {
            Stage.check(System.nanoTime() < deadline, "the consumers got no permits");
            Thread.sleep(LOOK_MILLIS);
        }
    }

    private static long consumersWithPermits(TopicStats stats) {
        return stats.getSubscriptions().values().stream()
                .flatMap(subscription -> subscription.getConsumers().stream())
                .filter(consumer -> consumer.getAvailablePermits() > 0)
                .count();
    }

    private static void endOfTopic(Stage stage) throws Exception {
        Consumer<byte[]> consumer = stage.subscribe(stage.topic());
        Producer<byte[]> producer = stage.producer(stage.topic()).create();
        Stage.send(producer, "message ", 3);
        String path = "/admin/v2/" + stage.topic().replace("://", "/") + "/terminate";
        stage.see("terminate", stage.http("POST", path, null).split(" ")[0]);
        stage.seeError("send after it", () -> producer.send(Stage.bytes("no")));
        stage.see("got", Stage.texts(Stage.receiveAndAck(consumer, 3)));
        for (int i = 0; i < 100 && !consumer.hasReachedEndOfTopic(); i++) {
            Thread.sleep(100);
        }
        stage.see("reached the end", consumer.hasReachedEndOfTopic());
    }
}
