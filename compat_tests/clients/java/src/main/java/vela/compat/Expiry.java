package vela.compat;

import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.InactiveTopicDeleteMode;
import org.apache.pulsar.common.policies.data.InactiveTopicPolicies;
import org.apache.pulsar.common.policies.data.SubscriptionStats;

/** What servers do at their own time: for those that look each minute, and at topics each second. */
final class Expiry {
    private static final int WAIT_SECONDS = 240;
    private static final int LOOK_MILLIS = 500;

    private Expiry() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("expiry", Expiry::play);
    }

    /** Messages, a subscription that is not used, and topics that nobody uses any more. */
    private static void play(Stage stage) throws Exception {
        Place place = new Place(stage);
        place.admin.namespaces().setNamespaceMessageTTL(place.namespace, 3_600);
        place.admin.namespaces().setSubscriptionExpirationTime(place.namespace, 1);
        Consumer<byte[]> used = stage.consumer(place.topic, SubscriptionType.Exclusive)
                .subscriptionName("used").receiverQueueSize(1).subscribe();
        place.admin.topics().createSubscription(place.topic, "unused", MessageId.earliest);
        Producer<byte[]> producer = stage.producer(place.topic).create();
        Stage.send(producer, "old ", 10);
        place.policies().setMessageTTL(place.topic, 5);
        inactive(place);
        place.until("without the inactive", List.of("backlog", "kept", "t"), () -> names(place));
        wait("nothing expires", () -> { // Real Pulsar counts what expired afterwards.
            SubscriptionStats shown = subscription(place, "used");
            return shown.getMsgBacklog() == 0 && shown.getTotalMsgExpired() > 0;
        });
        SubscriptionStats stats = subscription(place, "used");
        stage.see("expired", List.of(
                stats.getMsgBacklog(), stats.getTotalMsgExpired(), stats.getLastExpireTimestamp() > 0));
        wait("no subscription expires", () -> subscription(place, "unused") == null);
        producer.send(Stage.bytes("new"));
        Message<byte[]> message = Stage.receive(used, 1).get(0);
        if (!Stage.text(message).equals("new")) { // It was with the client when it expired.
            message = Stage.receive(used, 1).get(0);
        }
        stage.seeMessage("received", message);
        // That with the backlog goes when its subscription expires, now or with the next look.
        stage.see("topics", names(place).stream().filter(name -> !name.equals("backlog")).toList());
    }

    /** Topics that are left by all, some with policies by which they stay. */
    private static void inactive(Place place) throws Exception {
        for (String name : List.of("unsubscribed", "caught-up", "backlog", "kept")) {
            String topic = "persistent://" + place.namespace + "/" + name;
            Producer<byte[]> producer = place.stage.producer(topic).create();
            if (!name.equals("unsubscribed")) {
                place.stage.subscribe(topic).close();
            }
            if (name.equals("backlog")) {
                producer.send(Stage.bytes("x"));
            }
            InactiveTopicDeleteMode mode = name.equals("unsubscribed")
                    ? InactiveTopicDeleteMode.delete_when_no_subscriptions
                    : InactiveTopicDeleteMode.delete_when_subscriptions_caught_up;
            place.policies().setInactiveTopicPolicies(
                    topic, new InactiveTopicPolicies(mode, 1, !name.equals("kept")));
            producer.close();
        }
    }

    private static List<String> names(Place place) throws Exception {
        TreeSet<String> names = new TreeSet<>();
        for (String topic : place.admin.topics().getList(place.namespace)) {
            String name = topic.substring(topic.lastIndexOf('/') + 1);
            if (!name.startsWith("__")) {
                names.add(name);
            }
        }
        return List.copyOf(names);
    }

    private static SubscriptionStats subscription(Place place, String name) throws Exception {
        return place.admin.topics().getStats(place.topic).getSubscriptions().get(name);
    }

    private static void wait(String otherwise, Callable<Boolean> holds) throws Exception {
        long deadline = System.nanoTime() + WAIT_SECONDS * 1_000_000_000L;
        while (!holds.call()) {
            Stage.check(System.nanoTime() < deadline, otherwise);
            Thread.sleep(LOOK_MILLIS);
        }
    }
}
