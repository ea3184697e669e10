package vela.compat;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.DispatchRate;
import org.apache.pulsar.common.policies.data.PublishRate;
import org.apache.pulsar.common.policies.data.ResourceGroup;
import org.apache.pulsar.common.policies.data.SubscribeRate;

/**
 * Rates of publishing, dispatching and subscribing. A second's share passes at once and the rest at
 * the rate, so what is told of a time is only whether it is long or short.
 */
final class Rates {
    private static final String BROKER_RATE = "brokerPublisherThrottlingMaxMessageRate";
    private static final int ATTEMPTS_MAX = 10;
    private static final double HELD_SECONDS_MIN = 0.5;
    private static final double HELD_SECONDS_MAX = 20;

    private Rates() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("publish-rate", Rates::publish);
        scenarios.put("dispatch-rate", Rates::dispatch);
        scenarios.put("subscribe-rate", Rates::subscribe);
        scenarios.put("resource-group-publish-budget", Rates::resourceGroup);
    }

    /** Of the topic by messages, of its namespace by bytes, of the broker. None is refused. */
    private static void publish(Stage stage) throws Exception {
        Place place = new Place(stage);
        Consumer<byte[]> consumer = stage.subscribe(place.topic);
        Producer<byte[]> producer = producer(stage, place.topic);
        PublishRate ofTopic = new PublishRate(100, -1);
        place.policies().setPublishRate(place.topic, ofTopic);
        place.until("of the topic", ofTopic, () -> place.policies().getPublishRate(place.topic));
        held(stage, "by the topic's", () -> send(producer, 170, 1));
        place.policies().removePublishRate(place.topic);
        place.until("removed", "null", () -> place.policies().getPublishRate(place.topic));
        PublishRate ofNamespace = new PublishRate(-1, 20_000);
        place.admin.namespaces().setPublishRate(place.namespace, ofNamespace);
        held(stage, "by the namespace's", () -> send(producer, 35, 1_000));
        place.admin.namespaces().removePublishRate(place.namespace);
        place.until("removed", "null",
                () -> place.admin.namespaces().getPublishRate(place.namespace));
        ofBroker(place, producer);
        quick(stage, "no longer held", () -> send(producer, 300, 1));
        int sent = (int) producer.getLastSequenceId() + 1;
        Stage.check(sent >= 170 + 35 + 170 + 300, "only " + sent + " were sent");
        Stage.receiveAndAck(consumer, sent);
    }

    private static void ofBroker(Place place, Producer<byte[]> producer) throws Exception {
        try {
            setOfBroker(place, "100");
            held(place.stage, "by the broker's", () -> send(producer, 170, 1));
        } finally {
            setOfBroker(place, "0");
            place.admin.brokers().deleteDynamicConfiguration(BROKER_RATE);
        }
    }

    private static void setOfBroker(Place place, String rate) throws Exception {
        place.admin.brokers().updateDynamicConfiguration(BROKER_RATE, rate);
        place.until("rate of the broker", rate,
                () -> place.admin.brokers().getRuntimeConfigurations().get(BROKER_RATE));
    }

    /**
     * Of the topic, of each subscription, and of one of them. Real Pulsar lets each dispatcher read
     * up to a second's share before it counts what they sent, so each gets more than that.
     */
    private static void dispatch(Stage stage) throws Exception {
        Place place = new Place(stage);
        Consumer<byte[]> exclusive = stage.subscribe(place.topic);
        Consumer<byte[]> shared = stage.consumer(place.topic, SubscriptionType.Shared)
                .subscriptionName("shared").subscribe();
        Producer<byte[]> producer = producer(stage, place.topic);
        DispatchRate rate = DispatchRate.builder().dispatchThrottlingRateInMsg(100)
                .dispatchThrottlingRateInByte(-1).ratePeriodInSecond(1).build();
        place.policies().setDispatchRate(place.topic, rate);
        place.until("of the topic", rate,
                () -> place.policies().getDispatchRate(place.topic, true));
        held(stage, "both together", () -> {
            send(producer, 150, 1);
            return sizes(exclusive, shared, 150);
        });
        place.policies().removeDispatchRate(place.topic);
        place.admin.namespaces().setSubscriptionDispatchRate(place.namespace, rate);
        place.until("of each subscription", rate,
                () -> place.policies().getSubscriptionDispatchRate(place.topic, true));
        held(stage, "each", () -> {
            send(producer, 170, 1);
            return sizes(exclusive, shared, 170);
        });
        DispatchRate high = DispatchRate.builder().dispatchThrottlingRateInMsg(100_000)
                .dispatchThrottlingRateInByte(-1).ratePeriodInSecond(1).build();
        place.policies().setSubscriptionDispatchRate(place.topic, "shared", high);
        place.until("of one subscription", high, () -> place.policies()
                .getSubscriptionDispatchRate(place.topic, "shared", true));
        send(producer, 170, 1);
        quick(stage, "one", () -> Stage.receiveAndAck(shared, 170).size());
        held(stage, "the other one", () -> Stage.receiveAndAck(exclusive, 170).size());
    }

    private static Object sizes(Consumer<byte[]> one, Consumer<byte[]> other, int count)
            throws Exception {
        return List.of(Stage.receiveAndAck(one, count).size(),
                Stage.receiveAndAck(other, count).size());
    }

    /** A consumer that comes again too soon is refused, and another one is not. */
    private static void subscribe(Stage stage) throws Exception {
        Place place = new Place(stage);
        SubscribeRate rate = new SubscribeRate(1, 30);
        place.admin.namespaces().setSubscribeRate(place.namespace, rate);
        place.until("in force", rate,
                () -> place.policies().getSubscribeRate(place.topic, true));
        for (int number = 0; number < 2; number++) {
            PulsarClient client = stage.newClient();
            for (String name : new String[] {"a", "b"}) {
                stage.seeError(number + " " + name, () -> {
                    client.newConsumer().topic(place.topic).subscriptionName("s")
                            .consumerName(name).subscribe().close();
                    return null;
                });
            }
        }
    }

    /** Two namespaces of the group share its budget, and a third one is free. */
    private static void resourceGroup(Stage stage) throws Exception {
        Place place = new Place(stage);
        String group = stage.name();
        ResourceGroup budget = new ResourceGroup();
        budget.setPublishRateInMsgs(100);
        place.admin.resourcegroups().createResourceGroup(group, budget);
        List<Producer<byte[]>> producers = new ArrayList<>();
        for (String name : new String[] {"one", "two", "free"}) {
            String namespace = place.namespace + "-" + name;
            place.admin.namespaces().createNamespace(namespace);
            if (!name.equals("free")) {
                place.admin.namespaces().setNamespaceResourceGroup(namespace, group);
            }
            producers.add(producer(stage, "persistent://" + namespace + "/t"));
        }
        stage.see("kept", place.admin.resourcegroups().getResourceGroup(group)
                .getPublishRateInMsgs());
        held(stage, "together", () -> {
            List<CompletableFuture<Void>> all = new ArrayList<>();
            for (Producer<byte[]> one : producers.subList(0, 2)) {
                all.addAll(sending(one, 90, 1));
            }
            return awaited(all);
        });
        quick(stage, "free", () -> send(producers.get(2), 90, 1));
        stage.see("in use", Place.errorOf(() -> {
            place.admin.resourcegroups().deleteResourceGroup(group);
            return null;
        }));
        for (String name : new String[] {"one", "two"}) {
            place.admin.namespaces().removeNamespaceResourceGroup(place.namespace + "-" + name);
        }
        place.admin.resourcegroups().deleteResourceGroup(group);
    }

    /** On a connection of its own: a rate holds whole connections. */
    private static Producer<byte[]> producer(Stage stage, String topic) throws Exception {
        return stage.newClient().newProducer().topic(topic).enableBatching(false)
                .sendTimeout(0, TimeUnit.SECONDS).create();
    }

    private static Object send(Producer<byte[]> producer, int count, int size) throws Exception {
        return awaited(sending(producer, count, size));
    }

    private static List<CompletableFuture<Void>> sending(
            Producer<byte[]> producer, int count, int size) {
        List<CompletableFuture<Void>> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            sent.add(producer.sendAsync(new byte[size]).thenAccept(id -> { }));
        }
        return sent;
    }

    private static Object awaited(List<CompletableFuture<Void>> sent) throws Exception {
        for (CompletableFuture<Void> one : sent) {
            one.get(30, TimeUnit.SECONDS);
        }
        return sent.size();
    }

    /** At the first or a later attempt: real Pulsar has a rate in force a little after its answer. */
    private static void held(Stage stage, String what, Callable<?> action) throws Exception {
        double seconds = 0;
        for (int i = 0; i < ATTEMPTS_MAX && seconds < HELD_SECONDS_MIN; i++) {
            long start = System.nanoTime();
            action.call();
            seconds = (System.nanoTime() - start) / 1e9;
        }
        Stage.check(seconds < HELD_SECONDS_MAX, what + " took " + seconds + " s");
        stage.see(what, seconds >= HELD_SECONDS_MIN);
    }

    private static void quick(Stage stage, String what, Callable<?> action) throws Exception {
        long start = System.nanoTime();
        stage.see(what, action.call());
        stage.see("not held", (System.nanoTime() - start) / 1e9 < 2);
    }
}
