package vela.compat;

import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** Who gets what: the four subscription types, several subscriptions, leaving for good. */
final class Subscriptions {
    private Subscriptions() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("exclusive", Subscriptions::exclusive);
        scenarios.put("failover", Subscriptions::failover);
        scenarios.put("failover-over-partitions", Subscriptions::failoverPartitions);
        scenarios.put("shared", Subscriptions::shared);
        scenarios.put("shared-priority-levels", Subscriptions::priority);
        scenarios.put("key-shared-auto", Subscriptions::keySharedAuto);
        scenarios.put("key-shared-sticky", Subscriptions::keySharedSticky);
        scenarios.put("several-subscriptions", Subscriptions::several);
        scenarios.put("unsubscribe", Subscriptions::unsubscribe);
    }

    private static void exclusive(Stage stage) throws Exception {
        Consumer<byte[]> first = stage.subscribe(stage.topic());
        for (SubscriptionType type : SubscriptionType.values()) {
            stage.seeError("a second consumer, " + type,
                    () -> stage.consumer(stage.topic(), type).subscribe());
        }
        Stage.send(stage.producer(stage.topic()).create(), "message ", 3);
        stage.see("first got", Stage.texts(Stage.receive(first, 3)));
        first.close();
        for (Message<byte[]> message
                : Stage.receiveAndAck(stage.subscribe(stage.topic()), 3)) {
            stage.seeMessage("second got", message);
        }
    }

    /** What consumers are told of being active or not, in order, by consumer. */
    private static final class Told implements ConsumerEventListener {
        private final Map<String, List<String>> told = Collections.synchronizedMap(new TreeMap<>());

        private void add(Consumer<?> consumer, String what) {
            told.computeIfAbsent(consumer.getConsumerName(), name -> new ArrayList<>()).add(what);
        }

        @Override
        public void becameActive(Consumer<?> consumer, int partition) {
            add(consumer, "active");
        }

        @Override
        public void becameInactive(Consumer<?> consumer, int partition) {
            add(consumer, "inactive");
        }

        Map<String, String> last() {
            Map<String, String> last = new TreeMap<>();
            told.forEach((name, all) -> last.put(name, all.get(all.size() - 1)));
            return last;
        }
    }

    private static void failover(Stage stage) throws Exception {
        Told told = new Told();
        Map<String, Consumer<byte[]>> consumers = new TreeMap<>();
        for (String name : List.of("b", "a", "c")) {
            consumers.put(name, stage.consumer(stage.topic(), SubscriptionType.Failover)
                    .consumerName(name)
                    .consumerEventListener(told)
                    .subscribe());
        }
        Producer<byte[]> producer = stage.producer(stage.topic()).create();
        while (!consumers.isEmpty()) {
            Thread.sleep(2000);
            int left = consumers.size();
            stage.see("told, " + left + " left", told.last());
            Stage.send(producer, "with " + left + " left ", 5);
            String active = null;
            List<String> names = List.copyOf(consumers.keySet());
            List<List<Message<byte[]>>> parts =
                    Stage.together(List.copyOf(consumers.values()), 5, 500);
            for (int i = 0; i < parts.size(); i++) {
                if (!parts.get(i).isEmpty()) {
                    active = names.get(i);
                    stage.see(active + " got", Stage.texts(parts.get(i)));
                }
            }
            Stage.check(active != null, "nobody got anything");
            consumers.remove(active).close();
        }
    }

    private static void failoverPartitions(Stage stage) throws Exception {
        stage.partition(stage.topic(), 6);
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            consumers.add(stage.consumer(stage.topic(), SubscriptionType.Failover)
                    .consumerName("c" + i).subscribe());
        }
        Thread.sleep(2500);
        for (int i = 0; i < 6; i++) {
            Producer<byte[]> producer =
                    stage.producer(stage.topic() + "-partition-" + i).create();
            Stage.send(producer, "partition " + i + " message ", 2);
        }
        List<List<Message<byte[]>>> parts = Stage.together(consumers, 12, 1000);
        for (int i = 0; i < consumers.size(); i++) {
            stage.see(consumers.get(i).getConsumerName(),
                    new TreeSet<>(Stage.texts(parts.get(i))));
        }
    }

    private static void shared(Stage stage) throws Exception {
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            consumers.add(stage.consumer(stage.topic(), SubscriptionType.Shared).subscribe());
        }
        Producer<byte[]> producer = stage.producer(stage.topic()).create();
        for (int i = 100; i < 160; i++) {
            producer.send(Stage.bytes("message " + i));
        }
        List<String> together = new ArrayList<>();
        for (List<Message<byte[]>> part : Stage.together(consumers, 60, 700)) {
            List<String> got = Stage.texts(part);
            Stage.check(!got.isEmpty(), "a consumer got nothing");
            List<String> sorted = got.stream().sorted().toList();
            stage.see("in order", got.equals(sorted));
            together.addAll(got);
        }
        Collections.sort(together);
        stage.see("together", together);
    }

    private static void priority(Stage stage) throws Exception {
        Consumer<byte[]> low = stage.consumer(stage.topic(), SubscriptionType.Shared)
                .priorityLevel(1).receiverQueueSize(10).subscribe();
        Consumer<byte[]> high = stage.consumer(stage.topic(), SubscriptionType.Shared)
                .priorityLevel(0).receiverQueueSize(10).subscribe();
        Producer<byte[]> producer = stage.producer(stage.topic()).create();
        for (int i = 0; i < 15; i++) {
            producer.send(Stage.bytes("message " + (100 + i)));
        }
        Thread.sleep(700);
        stage.see("low", Stage.texts(Stage.receive(low, 5)));
        stage.see("high", Stage.texts(Stage.receive(high, 10)));
    }

    private static void keySharedAuto(Stage stage) throws Exception {
        Map<String, Set<String>> owners = new TreeMap<>();
        Map<String, List<String>> order = new TreeMap<>();
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            consumers.add(stage.consumer(stage.topic(), SubscriptionType.Key_Shared)
                    .consumerName("c" + i).subscribe());
        }
        Producer<byte[]> producer = stage.producer(stage.topic())
                .enableBatching(true)
                .batcherBuilder(BatcherBuilder.KEY_BASED)
                .create();
        for (int i = 0; i < 240; i++) {
            producer.newMessage().key("key-" + i % 24).value(Stage.bytes("" + i)).sendAsync();
        }
        producer.flush();
        List<List<Message<byte[]>>> parts = Stage.together(consumers, 240, 700);
        for (int i = 0; i < consumers.size(); i++) {
            String name = consumers.get(i).getConsumerName();
            Stage.check(!parts.get(i).isEmpty(), "a consumer got nothing");
            for (Message<byte[]> message : parts.get(i)) {
                owners.computeIfAbsent(message.getKey(), key -> new TreeSet<>()).add(name);
                order.computeIfAbsent(message.getKey(), key -> new ArrayList<>())
                        .add(Stage.text(message));
            }
        }
        owners.forEach((key, names) -> stage.see("owners of " + key, names.size()));
        stage.see("order within a key", order);
        joinWhileUnacked(stage);
    }

    /** A key with a message in flight stays where it is although a consumer has joined. */
    private static void joinWhileUnacked(Stage stage) throws Exception {

        Consumer<byte[]> held = stage.consumer(stage.topic("join"), SubscriptionType.Key_Shared)
                .consumerName("held").subscribe();
        Producer<byte[]> other = stage.producer(stage.topic("join")).create();
        for (int i = 0; i < 20; i++) {
            other.newMessage().key("key-" + i).value(Stage.bytes("first")).send();
        }
        List<Message<byte[]>> inFlight = Stage.receive(held, 20);
        Consumer<byte[]> joined = stage.consumer(stage.topic("join"), SubscriptionType.Key_Shared)
                .consumerName("joined").subscribe();
        for (int i = 0; i < 20; i++) {
            other.newMessage().key("key-" + i).value(Stage.bytes("second")).send();
        }
        stage.see("the joined one before the acks",
                Stage.texts(Stage.untilSilence(joined, 700)));
        for (Message<byte[]> message : inFlight) {
            held.acknowledge(message);
        }
        List<List<Message<byte[]>>> parts = Stage.together(List.of(joined, held), 20, 700);
        Stage.check(!parts.get(0).isEmpty(), "the joined one got nothing after the acks");
        List<Message<byte[]>> afterwards = new ArrayList<>();
        parts.forEach(afterwards::addAll);
        afterwards.sort(Comparator.comparing(Message::getKey));
        for (Message<byte[]> message : afterwards) {
            stage.seeMessage("after the acks", message);
        }
    }

    private static void keySharedSticky(Stage stage) throws Exception {
        Consumer<byte[]> low = sticky(stage, 0, 30000);
        Consumer<byte[]> high = sticky(stage, 30001, 65535);
        stage.seeError("overlapping", () -> sticky(stage, 100, 200));
        Producer<byte[]> producer = stage.producer(stage.topic()).create();
        for (int i = 0; i < 40; i++) {
            producer.newMessage().key("key-" + i).value(Stage.bytes("" + i)).send();
        }
        List<List<Message<byte[]>>> parts = Stage.together(List.of(low, high), 40, 700);
        stage.see("low", Stage.texts(parts.get(0)));
        stage.see("high", Stage.texts(parts.get(1)));
    }

    private static Consumer<byte[]> sticky(Stage stage, int from, int to) throws Exception {
        return stage.consumer(stage.topic(), SubscriptionType.Key_Shared)
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(from, to)))
                .subscribe();
    }

    private static void several(Stage stage) throws Exception {
        Consumer<byte[]> early = stage.subscribe(stage.topic());
        Producer<byte[]> producer = stage.producer(stage.topic()).create();
        Stage.send(producer, "before ", 2);
        Consumer<byte[]> late = stage.consumer(stage.topic(), SubscriptionType.Exclusive)
                .subscriptionName("late").subscribe();
        Consumer<byte[]> fromStart = stage.consumer(stage.topic(), SubscriptionType.Exclusive)
                .subscriptionName("start")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe();
        Stage.send(producer, "after ", 2);
        stage.see("early", Stage.gets(early, 4, 700));
        stage.see("late", Stage.gets(late, 2, 700));
        stage.see("from start", Stage.gets(fromStart, 4, 700));
    }

    private static void unsubscribe(Stage stage) throws Exception {
        Consumer<byte[]> consumer = stage.subscribe(stage.topic());
        Producer<byte[]> producer = stage.producer(stage.topic()).create();
        Stage.send(producer, "message ", 2);
        stage.see("first got", Stage.texts(Stage.receive(consumer, 1)));
        consumer.unsubscribe();
        Consumer<byte[]> again = stage.subscribe(stage.topic());
        stage.see("a new one of the name", Stage.texts(Stage.untilSilence(again, 500)));
        Consumer<byte[]> one = stage.consumer(stage.topic(), SubscriptionType.Shared)
                .subscriptionName("shared").subscribe();
        Consumer<byte[]> other = stage.consumer(stage.topic(), SubscriptionType.Shared)
                .subscriptionName("shared").subscribe();
        stage.seeError("with another one there", () -> {
            one.unsubscribe();
            return null;
        });
        other.close();
        stage.seeError("alone", () -> {
            one.unsubscribe();
            return null;
        });
    }
}
