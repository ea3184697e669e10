package vela.compat;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.common.policies.data.BacklogQuota;
import org.apache.pulsar.common.policies.data.BacklogQuota.BacklogQuotaType;
import org.apache.pulsar.common.policies.data.BacklogQuota.RetentionPolicy;
import org.apache.pulsar.common.policies.data.RetentionPolicies;

/**
 * Quotas of backlogs and retention. Real Pulsar looks at backlogs once a minute or when it is asked
 * to, Vela also while messages are published: the scenarios ask, and stop publishing at the limit.
 */
final class Backlogs {
    private static final int LIMIT = 10_240;
    private static final byte[] PAYLOAD = new byte[1_024];

    private Backlogs() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("backlog-quota-of-size", Backlogs::ofSize);
        scenarios.put("backlog-quota-with-eviction", Backlogs::withEviction);
        scenarios.put("backlog-quota-of-age", Backlogs::ofAge);
        scenarios.put("retention", Backlogs::retention);
    }

    private static BacklogQuota quota(long bytes, int seconds, RetentionPolicy policy) {
        return BacklogQuota.builder().limitSize(bytes).limitTime(seconds)
                .retentionPolicy(policy).build();
    }

    private static Object checked(Place place) throws Exception {
        place.admin.brokers().backlogQuotaCheck();
        return null;
    }

    private static int publishers(Place place) throws Exception {
        checked(place);
        return place.admin.topics().getStats(place.topic).getPublishers().size();
    }

    private static long backlog(Place place) throws Exception {
        checked(place);
        return place.admin.topics().getStats(place.topic).getBacklogSize();
    }

    private static long backlogOfSubscription(Place place) throws Exception {
        checked(place);
        return place.admin.topics().getStats(place.topic).getSubscriptions().get("s")
                .getMsgBacklog();
    }

    private static String creating(Place place) {
        return Place.errorOf(() -> {
            place.stage.impatientClient().newProducer().topic(place.topic).create().close();
            return null;
        });
    }

    /** A producer fails or waits, as the policy says, and both go on when there is room. */
    private static void ofSize(Stage stage) throws Exception {
        Place place = new Place(stage);
        stage.subscribe(place.topic).close();
        for (RetentionPolicy policy : List.of(RetentionPolicy.producer_exception,
                RetentionPolicy.producer_request_hold)) {
            place.admin.namespaces().setBacklogQuota(
                    place.namespace, quota(LIMIT, 0, policy), BacklogQuotaType.destination_storage);
            Producer<byte[]> producer = stage.newClient().newProducer().topic(place.topic)
                    .enableBatching(false).sendTimeout(30, TimeUnit.SECONDS).create();
            for (int i = 0; i < 10; i++) {
                producer.send(PAYLOAD);
            }
            place.until("publishers at the limit", 0, () -> publishers(place));
            CompletableFuture<MessageId> late = producer.sendAsync(PAYLOAD);
            place.until("another one", "ProducerBlockedQuotaExceeded" + (
                    policy == RetentionPolicy.producer_exception ? "Exception" : "Error"),
                    () -> creating(place));
            if (policy == RetentionPolicy.producer_exception) {
                stage.see("one more message", Place.errorOf(() -> late.get(20, TimeUnit.SECONDS)));
            } else {
                stage.see("one more message waits", !late.isDone());
            }
            place.admin.topics().skipAllMessages(place.topic, "s");
            place.until("another one with room", "none", () -> creating(place));
            if (policy == RetentionPolicy.producer_request_hold) {
                stage.see("it goes on", Place.errorOf(() -> late.get(20, TimeUnit.SECONDS)));
            }
            producer.close();
        }
    }

    /** The newest messages are kept, and producers stay. */
    private static void withEviction(Stage stage) throws Exception {
        Place place = new Place(stage);
        stage.subscribe(place.topic).close();
        BacklogQuota quota = quota(LIMIT, 0, RetentionPolicy.consumer_backlog_eviction);
        place.policies().setBacklogQuota(
                place.topic, quota, BacklogQuotaType.destination_storage);
        place.until("in force", quota, () -> place.policies().getBacklogQuotaMap(place.topic, true)
                .get(BacklogQuotaType.destination_storage));
        Producer<byte[]> producer = stage.producer(place.topic).create();
        for (int i = 0; i < 20; i++) {
            PAYLOAD[0] = (byte) i;
            producer.send(PAYLOAD);
        }
        place.until("evicted", true, () -> backlog(place) < LIMIT);
        place.until("another one", "none", () -> creating(place));
        Consumer<byte[]> consumer = stage.subscribe(place.topic);
        int kept = 0;
        Message<byte[]> message;
        do {
            message = Stage.receive(consumer, 1).get(0);
            kept++;
        } while (message.getData()[0] != 19);
        stage.see("some are kept", kept > 5 && kept < 10);
    }

    /** The age of a ledger counts from when it was closed. */
    private static void ofAge(Stage stage) throws Exception {
        Place place = new Place(stage);
        stage.subscribe(place.topic).close();
        stage.producer(place.topic).create().send(Stage.bytes("old"));
        stage.closeClients();
        place.until("before the quota", "none", () -> creating(place));
        place.admin.topics().unload(place.topic);
        place.admin.topics().getStats(place.topic);
        Thread.sleep(1_500);
        for (RetentionPolicy policy : List.of(RetentionPolicy.producer_exception,
                RetentionPolicy.producer_request_hold)) {
            place.policies().setBacklogQuota(
                    place.topic, quota(0, 1, policy), BacklogQuotaType.message_age);
            place.until("in a closed ledger", policy == RetentionPolicy.producer_exception
                    ? "ProducerBlockedQuotaExceededException"
                    : "ProducerBlockedQuotaExceededError", () -> creating(place));
        }
        place.policies().setBacklogQuota(place.topic,
                quota(0, 1, RetentionPolicy.consumer_backlog_eviction),
                BacklogQuotaType.message_age);
        place.until("a producer", "none", () -> creating(place));
        stage.producer(place.topic).create().send(Stage.bytes("new"));
        place.until("evicted", 1L, () -> backlogOfSubscription(place));
        stage.see("left", Stage.texts(Stage.receive(stage.subscribe(place.topic), 1)));
    }

    /** What is acknowledged is kept as long as the namespace says, and the topic before it. */
    private static void retention(Stage stage) throws Exception {
        Place place = new Place(stage);
        RetentionPolicies kept = new RetentionPolicies(-1, -1);
        place.policies().setRetention(place.topic, kept);
        place.until("in force", kept, () -> place.policies().getRetention(place.topic, true));
        Consumer<byte[]> consumer = stage.subscribe(place.topic);
        stage.producer(place.topic).create().send(Stage.bytes("old"));
        Stage.receiveAndAck(consumer, 1);
        // Real Pulsar may lose an acknowledgement that is on its way in an unload.
        place.until("acknowledged", 0L, () -> backlogOfSubscription(place));
        stage.closeClients();
        place.admin.topics().unload(place.topic);
        place.admin.topics().getStats(place.topic); // Its ledger is closed when it is loaded again.
        place.admin.topics().trimTopic(place.topic);
        stage.see("earliest", earliest(stage, place.topic));
        place.policies().removeRetention(place.topic);
        place.until("removed", "null", () -> place.policies().getRetention(place.topic, false));
        place.until("earliest", "nothing", () -> {
            place.admin.topics().trimTopic(place.topic);
            return earliest(stage, place.topic);
        });
    }

    private static String earliest(Stage stage, String topic) throws Exception {
        try (Reader<byte[]> reader = stage.client().newReader().topic(topic)
                .startMessageId(MessageId.earliest).create()) {
            Message<byte[]> message = reader.readNext(700, TimeUnit.MILLISECONDS);
            return message == null ? "nothing" : Stage.text(message);
        }
    }
}
