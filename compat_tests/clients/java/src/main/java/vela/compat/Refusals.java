package vela.compat;

import java.util.Map;
import java.util.TreeSet;
import org.apache.pulsar.client.admin.Topics;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.SubscriptionType;

/** What a client is told that a namespace or a topic has no place for. */
final class Refusals {
    private Refusals() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("refused-consumers", Refusals::consumers);
        scenarios.put("topics-of-a-namespace", Refusals::topics);
    }

    /** Types that are not enabled, and subscriptions that do not come by themselves. */
    private static void consumers(Stage stage) throws Exception {
        String name = namespace(stage, "given", "\"subscription_types_enabled\": [\"Exclusive\"], "
                + "\"autoSubscriptionCreationOverride\": {\"allowAutoSubscriptionCreation\": false}");
        for (String domain : new String[] {"persistent", "non-persistent"}) {
            String topic = domain + "://" + name + "/t";
            Topics admin = stage.admin().topics();
            admin.createNonPartitionedTopic(topic);
            if (domain.equals("persistent")) {
                admin.createSubscription(topic, "there", MessageId.earliest);
            }
            attempt(stage, topic, "there", SubscriptionType.Exclusive).subscribe();
            for (String subscription : new String[] {"there", "new"}) {
                for (SubscriptionType type : new SubscriptionType[] {
                        SubscriptionType.Exclusive, SubscriptionType.Shared}) {
                    see(stage, attempt(stage, topic, subscription, type));
                }
                see(stage, attempt(stage, topic, subscription, SubscriptionType.Exclusive)
                        .readCompacted(true));
            }
            if (domain.equals("persistent")) {
                stage.see("left", new TreeSet<>(admin.getSubscriptions(topic)));
            }
        }
    }

    private static ConsumerBuilder<byte[]> attempt(Stage stage, String topic, String subscription,
            SubscriptionType type) throws Exception {
        return stage.impatientClient().newConsumer().topic(topic)
                .subscriptionName(subscription).subscriptionType(type);
    }

    private static void see(Stage stage, ConsumerBuilder<byte[]> asked) {
        stage.seeError("consumer", () -> {
            Consumer<byte[]> consumer = asked.subscribe();
            consumer.close();
            return null;
        });
    }

    /** In every way that there is to make one too many. */
    private static void topics(Stage stage) throws Exception {
        String name = namespace(stage, "given", "\"max_topics_per_namespace\": 2");
        String base = "persistent://" + name + "/";
        Topics admin = stage.admin().topics();
        stage.seeError("producer", () -> stage.producer(base + "a").create());
        stage.seeError("too many partitions", () -> {
            admin.createPartitionedTopic(base + "p", 2);
            return null;
        });
        stage.seeError("consumer", () -> stage.subscribe(base + "b"));
        stage.seeError("one more producer", () -> stage.producer(base + "c").create());
        stage.seeError("one more consumer", () -> stage.subscribe(base + "c"));
        stage.seeError("one more reader", () -> stage.client().newReader().topic(base + "c")
                .startMessageId(MessageId.latest).create());
        stage.seeError("one more of an administrator", () -> {
            admin.createNonPartitionedTopic(base + "c");
            return null;
        });
        stage.seeError("that is there", () -> stage.producer(base + "b").create());
        stage.seeError("that stores nothing",
                () -> stage.producer("non-" + base + "c").create());
        stage.see("topics", new TreeSet<>(admin.getList(name)).stream()
                .map(topic -> topic.substring(topic.lastIndexOf('/'))).toList());
    }

    private static String namespace(Stage stage, String suffix, String policies) throws Exception {
        String name = "public/" + stage.name() + "-" + suffix;
        String answer =
                stage.http("PUT", "/admin/v2/namespaces/" + name, "{" + policies + "}");
        Stage.check(answer.startsWith("204"), answer);
        return name;
    }
}
