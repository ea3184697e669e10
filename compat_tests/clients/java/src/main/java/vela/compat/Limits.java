package vela.compat;

import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionType;

/** Limits: what a client sees that is over one, and that it can go on. */
final class Limits {
    private static final int IN_FORCE_SECONDS_MAX = 10;

    private Limits() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("limits-of-counts", Limits::counts);
        scenarios.put("limits-of-sizes", Limits::sizes);
    }

    /** In a namespace whose limits were set before its topics were there. */
    private static void counts(Stage stage) throws Exception {
        String local = stage.topic().substring(stage.topic().lastIndexOf('/') + 1);
        String namespace = "public/" + local;
        String path = "/admin/v2/namespaces/" + namespace;
        set(stage, "PUT", path, null);
        set(stage, "POST", path + "/maxProducersPerTopic", "1");
        set(stage, "POST", path + "/maxConsumersPerSubscription", "1");
        set(stage, "POST", path + "/maxSubscriptionsPerTopic", "2");
        set(stage, "POST", path + "/subscriptionTypesEnabled", "[\"Shared\"]");
        for (String domain : new String[] {"persistent", "non-persistent"}) {
            String topic = domain + "://" + namespace + "/t";
            Producer<byte[]> first = stage.producer(topic).create();
            stage.seeError("a second producer", () -> stage.producer(topic).create());
            first.close();
            stage.seeError("after the first has closed", () -> stage.producer(topic).create());
            for (String name : new String[] {"one", "one", "two", "three"}) {
                stage.seeError("consumer of " + name, () -> stage.consumer(topic,
                        SubscriptionType.Shared).subscriptionName(name).subscribe());
            }
            stage.seeError("a reader", () -> stage.client().newReader().topic(topic)
                    .startMessageId(org.apache.pulsar.client.api.MessageId.latest).create());
            stage.seeError("another type", () -> stage.consumer(topic,
                    SubscriptionType.Failover).subscriptionName("two").subscribe());
        }
    }

    private static void sizes(Stage stage) throws Exception {
        String path = "/admin/v2/" + stage.topic().replace("://", "/");
        Producer<byte[]> producer = stage.producer(stage.topic())
                .sendTimeout(10, TimeUnit.SECONDS).create();
        byte[] large = new byte[2_000];
        producer.send(large);
        set(stage, "POST", path + "/maxMessageSize", "1000");
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(IN_FORCE_SECONDS_MAX);
        boolean taken = true;
        while (taken && System.nanoTime() < deadline) {
            try {
                producer.send(large);
            } catch (PulsarClientException refused) {
                taken = false;
            }
        }
        stage.seeError("a large one", () -> producer.send(large));
        stage.seeError("a small one", () -> producer.send(new byte[500]));
        stage.seeError("a large one again", () -> producer.send(large));
        stage.seeError("a small one again", () -> producer.send(new byte[500]));
    }

    private static void set(Stage stage, String method, String path, String body)
            throws Exception {
        String answer = stage.http(method, path, body);
        Stage.check(answer.startsWith("204"), path + " answered " + answer);
    }
}
