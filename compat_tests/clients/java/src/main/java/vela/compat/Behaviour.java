package vela.compat;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.AutoSubscriptionCreationOverride;
import org.apache.pulsar.common.policies.data.AutoTopicCreationOverride;
import org.apache.pulsar.common.policies.data.DelayedDeliveryPolicies;
import org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy;

/** Policies about what topics do, each in force on a topic that is in use. */
final class Behaviour {
    private static final String NONE = "none";

    private Behaviour() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("behaviour-of-a-topic", Behaviour::ofTopic);
        scenarios.put("deduplication", Behaviour::deduplication);
        scenarios.put("schema-policies", Behaviour::schemas);
        scenarios.put("automatic-creation", Behaviour::creation);
        scenarios.put("limits-of-unacknowledged", Behaviour::unacknowledged);
    }

    /** Delays, types of subscriptions, and their automatic creation. */
    private static void ofTopic(Stage stage) throws Exception {
        Place place = new Place(stage);
        Producer<byte[]> producer = stage.producer(place.topic).create();
        stage.see("any delay", delayed(producer, 10_000));
        place.policies().setDelayedDeliveryPolicy(place.topic, DelayedDeliveryPolicies.builder()
                .active(true).tickTime(1_000).maxDeliveryDelayInMillis(5_000).build());
        place.until("a longer delay", "NotAllowedException", () -> delayed(producer, 10_000));
        stage.see("a shorter delay", delayed(producer, 3_000));
        place.policies().removeDelayedDeliveryPolicy(place.topic);
        place.until("any delay again", NONE, () -> delayed(producer, 10_000));
        place.policies().setSubscriptionTypesEnabled(
                place.topic, Set.of(SubscriptionType.Shared, SubscriptionType.Failover));
        place.until("an exclusive one", "NotAllowedException",
                () -> subscribing(place, SubscriptionType.Exclusive, "of"));
        for (SubscriptionType type : SubscriptionType.values()) {
            stage.see(type.name(), subscribing(place, type, "of-" + type));
        }
        place.policies().removeSubscriptionTypesEnabled(place.topic);
        place.until("an exclusive one again", NONE,
                () -> subscribing(place, SubscriptionType.Exclusive, "of"));
        place.policies().setAutoSubscriptionCreation(place.topic,
                AutoSubscriptionCreationOverride.builder()
                        .allowAutoSubscriptionCreation(false).build());
        place.until("allowed", false, () -> place.policies()
                .getAutoSubscriptionCreation(place.topic, true).isAllowAutoSubscriptionCreation());
        stage.see("a new subscription", subscribing(place, SubscriptionType.Shared, "new"));
        stage.see("one that is there", subscribing(place, SubscriptionType.Exclusive, "of"));
        place.policies().removeAutoSubscriptionCreation(place.topic);
        place.until("a new one again", NONE,
                () -> subscribing(place, SubscriptionType.Shared, "new"));
    }

    private static String delayed(Producer<byte[]> producer, int millis) {
        return Place.errorOf(() -> producer.newMessage().value(new byte[1])
                .deliverAfter(millis, TimeUnit.MILLISECONDS).send());
    }

    private static String subscribing(Place place, SubscriptionType type, String name) {
        return Place.errorOf(() -> {
            place.stage.consumer(place.topic, type).subscriptionName(name).subscribe().close();
            return null;
        });
    }

    /** Of the namespace, and of the topic against it. */
    private static void deduplication(Stage stage) throws Exception {
        Place place = new Place(stage);
        Consumer<byte[]> consumer = stage.subscribe(place.topic);
        stage.see("of nobody", sentTwice(place, consumer));
        place.admin.namespaces().setDeduplicationStatus(place.namespace, true);
        place.until("of the namespace", "[a, b]", () -> sentTwice(place, consumer));
        place.policies().setDeduplicationStatus(place.topic, false);
        place.until("of the topic", "[a, a, b]", () -> sentTwice(place, consumer));
        place.policies().removeDeduplicationStatus(place.topic);
        place.until("of the namespace again", "[a, b]", () -> sentTwice(place, consumer));
    }

    private static List<String> sentTwice(Place place, Consumer<byte[]> consumer)
            throws Exception {
        try (Producer<byte[]> producer = place.stage.producer(place.topic)
                .producerName("p" + System.nanoTime()).create()) {
            for (String text : new String[] {"a", "a", "b"}) {
                producer.newMessage().value(Stage.bytes(text))
                        .sequenceId(text.equals("a") ? 1 : 2).send();
            }
        }
        return Stage.texts(Stage.untilSilence(consumer, 200));
    }

    /** A record that grows. */
    static final class Small {
        public int number;
    }

    /** The same with a field that has no default. */
    static final class Large {
        public int number;
        public long more;
    }

    private static void schemas(Stage stage) throws Exception {
        Place place = new Place(stage);
        stage.see("the first", producing(place, Schema.JSON(Small.class)));
        for (SchemaCompatibilityStrategy strategy : List.of(
                SchemaCompatibilityStrategy.ALWAYS_INCOMPATIBLE,
                SchemaCompatibilityStrategy.FORWARD)) {
            place.policies().setSchemaCompatibilityStrategy(place.topic, strategy);
            place.until("strategy", strategy, () -> place.policies()
                    .getSchemaCompatibilityStrategy(place.topic, true));
            stage.see("the same with " + strategy, producing(place, Schema.JSON(Small.class)));
            stage.see("another with " + strategy, producing(place, Schema.STRING));
            stage.see("more with " + strategy, producing(place, Schema.JSON(Large.class)));
        }
        place.policies().removeSchemaCompatibilityStrategy(place.topic);
        stage.see("without a schema", producing(place, Schema.BYTES));
        place.admin.namespaces().setSchemaValidationEnforced(place.namespace, true);
        place.until("validation", true, () -> place.admin.topics()
                .getSchemaValidationEnforced(place.topic, true));
        place.until("without a schema, enforced", "IncompatibleSchemaException",
                () -> producing(place, Schema.BYTES));
        place.admin.topics().setSchemaValidationEnforced(place.topic, true);
        place.admin.namespaces().setSchemaValidationEnforced(place.namespace, false);
        place.until("validation", true, () -> place.admin.topics()
                .getSchemaValidationEnforced(place.topic, true));
        place.until("enforced for the topic", "IncompatibleSchemaException",
                () -> producing(place, Schema.BYTES));
        place.admin.topics().setSchemaValidationEnforced(place.topic, false);
        place.until("no longer enforced", NONE, () -> producing(place, Schema.BYTES));
    }

    private static String producing(Place place, Schema<?> schema) {
        return Place.errorOf(() -> {
            place.stage.client().newProducer(schema).topic(place.topic).create().close();
            return null;
        });
    }

    /** Of topics and subscriptions of a namespace, by clients alone. */
    private static void creation(Stage stage) throws Exception {
        Place place = new Place(stage);
        String base = "persistent://" + place.namespace + "/";
        place.admin.namespaces().setAutoTopicCreation(place.namespace,
                AutoTopicCreationOverride.builder().allowAutoTopicCreation(false).build());
        stage.seeError("a producer", () -> stage.producer(base + "a").create());
        stage.seeError("a consumer", () -> stage.subscribe(base + "a"));
        place.admin.namespaces().setAutoTopicCreation(place.namespace,
                AutoTopicCreationOverride.builder().allowAutoTopicCreation(true)
                        .topicType("partitioned").defaultNumPartitions(3).build());
        stage.seeError("a producer of three", () -> stage.producer(base + "b").create());
        stage.see("partitions", stage.client().getPartitionsForTopic(base + "b").get().size());
        place.admin.namespaces().removeAutoTopicCreation(place.namespace);
        stage.seeError("a producer of one", () -> stage.producer(base + "c").create());
        stage.see("partition", stage.client().getPartitionsForTopic(base + "c").get().size());
        place.admin.namespaces().setAutoSubscriptionCreation(place.namespace,
                AutoSubscriptionCreationOverride.builder()
                        .allowAutoSubscriptionCreation(false).build());
        stage.seeError("a subscription", () -> stage.subscribe(base + "c"));
        place.admin.topics().createSubscription(base + "c", "s",
                org.apache.pulsar.client.api.MessageId.latest);
        stage.seeError("one that is there", () -> stage.subscribe(base + "c"));
        place.admin.namespaces().removeAutoSubscriptionCreation(place.namespace);
        stage.seeError("a new one", () -> stage.consumer(base + "c", SubscriptionType.Shared)
                .subscriptionName("new").subscribe());
    }

    /** What is above the limit waits for acknowledgements. */
    private static void unacknowledged(Stage stage) throws Exception {
        Place place = new Place(stage);
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            consumers.add(stage.consumer(place.topic, SubscriptionType.Shared)
                    .receiverQueueSize(1).subscribe());
        }
        place.policies().setMaxUnackedMessagesOnConsumer(place.topic, 5);
        place.until("of a consumer", 5, () -> place.policies()
                .getMaxUnackedMessagesOnConsumer(place.topic, true));
        held(place, consumers);
        place.policies().removeMaxUnackedMessagesOnConsumer(place.topic);
        place.admin.namespaces().setMaxUnackedMessagesPerSubscription(place.namespace, 6);
        place.until("of a subscription", 6, () -> place.policies()
                .getMaxUnackedMessagesOnSubscription(place.topic, true));
        held(place, consumers);
    }

    /**
     * Of 40 messages some wait until those before them are acknowledged; none is lost. Real Pulsar
     * may send a few more than the limit when two consumers are served at once.
     */
    private static void held(Place place, List<Consumer<byte[]>> consumers) throws Exception {
        Stage.send(place.stage.producer(place.topic).create(), "", 40);
        Set<String> all = new TreeSet<>();
        List<List<Message<byte[]>>> first = new ArrayList<>();
        for (Consumer<byte[]> consumer : consumers) {
            List<Message<byte[]>> received = new ArrayList<>();
            Message<byte[]> message;
            while ((message = consumer.receive(400, TimeUnit.MILLISECONDS)) != null) {
                received.add(message);
            }
            all.addAll(Stage.texts(received));
            first.add(received);
        }
        place.stage.see("some wait", all.size() >= 5 && all.size() < 30);
        for (int i = 0; i < first.size(); i++) {
            for (Message<byte[]> message : first.get(i)) {
                consumers.get(i).acknowledge(message);
            }
        }
        Stage.together(consumers, 40 - all.size(), 300)
                .forEach(part -> all.addAll(Stage.texts(part)));
        place.stage.see("all", all.size());
    }
}
