package vela.compat;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.pulsar.client.admin.Namespaces;
import org.apache.pulsar.client.admin.TopicPolicies;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.AutoSubscriptionCreationOverride;
import org.apache.pulsar.common.policies.data.AutoTopicCreationOverride;
import org.apache.pulsar.common.policies.data.BacklogQuota;
import org.apache.pulsar.common.policies.data.DelayedDeliveryPolicies;
import org.apache.pulsar.common.policies.data.DispatchRate;
import org.apache.pulsar.common.policies.data.EntryFilters;
import org.apache.pulsar.common.policies.data.InactiveTopicDeleteMode;
import org.apache.pulsar.common.policies.data.InactiveTopicPolicies;
import org.apache.pulsar.common.policies.data.PersistencePolicies;
import org.apache.pulsar.common.policies.data.PublishRate;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.SchemaCompatibilityStrategy;
import org.apache.pulsar.common.policies.data.SubscribeRate;
import org.apache.pulsar.common.policies.data.SubscriptionAuthMode;

/** Every policy through the administrator's client: not set, set, in force, and removed. */
final class PolicyValues {
    private static final BacklogQuota QUOTA = BacklogQuota.builder().limitSize(1_000).limitTime(9)
            .retentionPolicy(BacklogQuota.RetentionPolicy.consumer_backlog_eviction).build();
    private static final DelayedDeliveryPolicies DELAYS = DelayedDeliveryPolicies.builder()
            .active(true).tickTime(2_000).maxDeliveryDelayInMillis(7_000).build();
    private static final DispatchRate RATE = DispatchRate.builder().dispatchThrottlingRateInMsg(9)
            .dispatchThrottlingRateInByte(99).ratePeriodInSecond(2).relativeToPublishRate(true)
            .build();
    private static final InactiveTopicPolicies INACTIVE = new InactiveTopicPolicies(
            InactiveTopicDeleteMode.delete_when_subscriptions_caught_up, 77, true);
    private static final AutoSubscriptionCreationOverride SUBSCRIPTIONS =
            AutoSubscriptionCreationOverride.builder().allowAutoSubscriptionCreation(false).build();
    private static final AutoTopicCreationOverride TOPICS = AutoTopicCreationOverride.builder()
            .allowAutoTopicCreation(true).topicType("partitioned").defaultNumPartitions(4).build();
    private static final RetentionPolicies RETENTION = new RetentionPolicies(-1, -1);
    private static final PersistencePolicies COPIES = new PersistencePolicies(1, 1, 1, 2.0);
    private static final PublishRate PUBLISHING = new PublishRate(11, 12);
    private static final SubscribeRate SUBSCRIBING = new SubscribeRate(3, 20);
    private static final Set<SubscriptionType> TYPES = Set.of(SubscriptionType.Shared);
    private static final EntryFilters FILTERS = new EntryFilters("one");

    /** What applies without them is in the configuration, and the servers' own differ. */
    private static final Set<String> OF_THE_BROKER = Set.of("backlog quotas", "persistence");

    private PolicyValues() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("policies-of-namespaces", PolicyValues::ofNamespaces);
        scenarios.put("policies-of-topics", PolicyValues::ofTopics);
    }

    private interface Change {
        void make() throws Exception;
    }

    private interface Look {
        Object at(boolean applied) throws Exception;
    }

    private static String told(Callable<?> look) {
        try {
            return String.valueOf(look.call());
        } catch (Exception refused) {
            return Stage.nameOf(refused);
        }
    }

    private static Object done(Change change) throws Exception {
        change.make();
        return "done";
    }

    /** Real Pulsar shows a policy of a topic a little after its answer. */
    private static void topic(
            Place place, String name, Object value, Change set, Look look, Change remove)
            throws Exception {
        String unset = told(() -> look.at(false));
        place.stage.see(name, unset);
        if (!OF_THE_BROKER.contains(name)) {
            place.stage.see("applied", told(() -> look.at(true)));
        }
        place.stage.see("set", told(() -> done(set)));
        place.until("kept", value, () -> told(() -> look.at(false)));
        place.stage.see("applied", told(() -> look.at(true)));
        place.stage.see("removed", told(() -> done(remove)));
        place.until("left", unset, () -> told(() -> look.at(false)));
    }

    private static void namespace(
            Stage stage, String name, Change set, Callable<?> look, Change remove) {
        stage.see(name, told(look));
        stage.see("set", told(() -> done(set)));
        stage.see("kept", told(look));
        if (remove != null) {
            stage.see("removed", told(() -> done(remove)));
            stage.see("left", told(look));
        }
    }

    private static void ofTopics(Stage stage) throws Exception {
        Place place = new Place(stage);
        TopicPolicies p = place.policies();
        String t = place.topic;
        BacklogQuota.BacklogQuotaType age = BacklogQuota.BacklogQuotaType.message_age;
        topic(place, "backlog quotas", Map.of(age, QUOTA), () -> p.setBacklogQuota(t, QUOTA, age),
                applied -> p.getBacklogQuotaMap(t, applied), () -> p.removeBacklogQuota(t, age));
        topic(place, "delayed delivery", DELAYS, () -> p.setDelayedDeliveryPolicy(t, DELAYS),
                applied -> p.getDelayedDeliveryPolicy(t, applied),
                () -> p.removeDelayedDeliveryPolicy(t));
        topic(place, "time to live", 8, () -> p.setMessageTTL(t, 8),
                applied -> p.getMessageTTL(t, applied), () -> p.removeMessageTTL(t));
        topic(place, "retention", RETENTION, () -> p.setRetention(t, RETENTION),
                applied -> p.getRetention(t, applied), () -> p.removeRetention(t));
        topic(place, "unacked of a consumer", 8, () -> p.setMaxUnackedMessagesOnConsumer(t, 8),
                applied -> p.getMaxUnackedMessagesOnConsumer(t, applied),
                () -> p.removeMaxUnackedMessagesOnConsumer(t));
        topic(place, "unacked of a subscription", 9,
                () -> p.setMaxUnackedMessagesOnSubscription(t, 9),
                applied -> p.getMaxUnackedMessagesOnSubscription(t, applied),
                () -> p.removeMaxUnackedMessagesOnSubscription(t));
        topic(place, "inactive topics", INACTIVE, () -> p.setInactiveTopicPolicies(t, INACTIVE),
                applied -> p.getInactiveTopicPolicies(t, applied),
                () -> p.removeInactiveTopicPolicies(t));
        topic(place, "dispatch rate", RATE, () -> p.setDispatchRate(t, RATE),
                applied -> p.getDispatchRate(t, applied), () -> p.removeDispatchRate(t));
        topic(place, "of subscriptions", RATE, () -> p.setSubscriptionDispatchRate(t, RATE),
                applied -> p.getSubscriptionDispatchRate(t, applied),
                () -> p.removeSubscriptionDispatchRate(t));
        topic(place, "of one subscription", RATE,
                () -> p.setSubscriptionDispatchRate(t, "s", RATE),
                applied -> p.getSubscriptionDispatchRate(t, "s", applied),
                () -> p.removeSubscriptionDispatchRate(t, "s"));
        topic(place, "of replicators", RATE, () -> p.setReplicatorDispatchRate(t, RATE),
                applied -> p.getReplicatorDispatchRate(t, applied),
                () -> p.removeReplicatorDispatchRate(t));
        topic(place, "compaction", 4_096L, () -> p.setCompactionThreshold(t, 4_096),
                applied -> p.getCompactionThreshold(t, applied),
                () -> p.removeCompactionThreshold(t));
        topic(place, "publish rate", PUBLISHING, () -> p.setPublishRate(t, PUBLISHING),
                applied -> p.getPublishRate(t),
                () -> p.removePublishRate(t));
        topic(place, "subscribe rate", SUBSCRIBING, () -> p.setSubscribeRate(t, SUBSCRIBING),
                applied -> p.getSubscribeRate(t, applied), () -> p.removeSubscribeRate(t));
        topic(place, "consumers of a subscription", 3,
                () -> p.setMaxConsumersPerSubscription(t, 3),
                applied -> p.getMaxConsumersPerSubscription(t),
                () -> p.removeMaxConsumersPerSubscription(t));
        topic(place, "producers", 3, () -> p.setMaxProducers(t, 3),
                applied -> p.getMaxProducers(t, applied), () -> p.removeMaxProducers(t));
        topic(place, "consumers", 3, () -> p.setMaxConsumers(t, 3),
                applied -> p.getMaxConsumers(t, applied), () -> p.removeMaxConsumers(t));
        topic(place, "subscriptions", 3, () -> p.setMaxSubscriptionsPerTopic(t, 3),
                applied -> p.getMaxSubscriptionsPerTopic(t),
                () -> p.removeMaxSubscriptionsPerTopic(t));
        topic(place, "message size", 300, () -> p.setMaxMessageSize(t, 300),
                applied -> p.getMaxMessageSize(t), () -> p.removeMaxMessageSize(t));
        topic(place, "snapshots of deduplication", 7,
                () -> p.setDeduplicationSnapshotInterval(t, 7),
                applied -> p.getDeduplicationSnapshotInterval(t),
                () -> p.removeDeduplicationSnapshotInterval(t));
        topic(place, "deduplication", true, () -> p.setDeduplicationStatus(t, true),
                applied -> p.getDeduplicationStatus(t, applied),
                () -> p.removeDeduplicationStatus(t));
        topic(place, "types", TYPES, () -> p.setSubscriptionTypesEnabled(t, TYPES),
                applied -> p.getSubscriptionTypesEnabled(t),
                () -> p.removeSubscriptionTypesEnabled(t));
        topic(place, "schemas", SchemaCompatibilityStrategy.FULL,
                () -> p.setSchemaCompatibilityStrategy(t, SchemaCompatibilityStrategy.FULL),
                applied -> p.getSchemaCompatibilityStrategy(t, applied),
                () -> p.removeSchemaCompatibilityStrategy(t));
        stage.see("validation of schemas", told(() ->
                done(() -> place.admin.topics().setSchemaValidationEnforced(t, true))));
        place.until("kept", true,
                () -> place.admin.topics().getSchemaValidationEnforced(t, false));
        topic(place, "automatic subscriptions", SUBSCRIPTIONS,
                () -> p.setAutoSubscriptionCreation(t, SUBSCRIPTIONS),
                applied -> p.getAutoSubscriptionCreation(t, applied),
                () -> p.removeAutoSubscriptionCreation(t));
        topic(place, "persistence", COPIES, () -> p.setPersistence(t, COPIES),
                applied -> p.getPersistence(t, applied), () -> p.removePersistence(t));
        stage.see("filters that are not there",
                told(() -> done(() -> p.setEntryFiltersPerTopic(t, FILTERS))));
        stage.see("no filters", told(() -> p.getEntryFiltersPerTopic(t, true)));
    }

    private static void ofNamespaces(Stage stage) throws Exception {
        Place place = new Place(stage);
        Namespaces p = place.admin.namespaces();
        String n = place.namespace;
        namespace(stage, "backlog quotas", () -> p.setBacklogQuota(n, QUOTA),
                () -> p.getBacklogQuotaMap(n), () -> p.removeBacklogQuota(n));
        namespace(stage, "delayed delivery", () -> p.setDelayedDeliveryMessages(n, DELAYS),
                () -> p.getDelayedDelivery(n), () -> p.removeDelayedDeliveryMessages(n));
        namespace(stage, "time to live", () -> p.setNamespaceMessageTTL(n, 8),
                () -> p.getNamespaceMessageTTL(n), () -> p.removeNamespaceMessageTTL(n));
        namespace(stage, "expiration", () -> p.setSubscriptionExpirationTime(n, 8),
                () -> p.getSubscriptionExpirationTime(n),
                () -> p.removeSubscriptionExpirationTime(n));
        namespace(stage, "retention", () -> p.setRetention(n, RETENTION),
                () -> p.getRetention(n), () -> p.removeRetention(n));
        namespace(stage, "persistence", () -> p.setPersistence(n, COPIES),
                () -> p.getPersistence(n), () -> p.removePersistence(n));
        namespace(stage, "unacked of a consumer", () -> p.setMaxUnackedMessagesPerConsumer(n, 8),
                () -> p.getMaxUnackedMessagesPerConsumer(n),
                () -> p.removeMaxUnackedMessagesPerConsumer(n));
        namespace(stage, "unacked of a subscription",
                () -> p.setMaxUnackedMessagesPerSubscription(n, 8),
                () -> p.getMaxUnackedMessagesPerSubscription(n),
                () -> p.removeMaxUnackedMessagesPerSubscription(n));
        namespace(stage, "inactive topics", () -> p.setInactiveTopicPolicies(n, INACTIVE),
                () -> p.getInactiveTopicPolicies(n), () -> p.removeInactiveTopicPolicies(n));
        namespace(stage, "dispatch rate", () -> p.setDispatchRate(n, RATE),
                () -> p.getDispatchRate(n), () -> p.removeDispatchRate(n));
        namespace(stage, "of subscriptions", () -> p.setSubscriptionDispatchRate(n, RATE),
                () -> p.getSubscriptionDispatchRate(n), () -> p.removeSubscriptionDispatchRate(n));
        namespace(stage, "of replicators", () -> p.setReplicatorDispatchRate(n, RATE),
                () -> p.getReplicatorDispatchRate(n), () -> p.removeReplicatorDispatchRate(n));
        namespace(stage, "publish rate", () -> p.setPublishRate(n, PUBLISHING),
                () -> p.getPublishRate(n), () -> p.removePublishRate(n));
        namespace(stage, "subscribe rate", () -> p.setSubscribeRate(n, SUBSCRIBING),
                () -> p.getSubscribeRate(n), () -> p.removeSubscribeRate(n));
        namespace(stage, "compaction", () -> p.setCompactionThreshold(n, 4_096),
                () -> p.getCompactionThreshold(n), () -> p.removeCompactionThreshold(n));
        namespace(stage, "consumers of a subscription",
                () -> p.setMaxConsumersPerSubscription(n, 3),
                () -> p.getMaxConsumersPerSubscription(n),
                () -> p.removeMaxConsumersPerSubscription(n));
        namespace(stage, "producers", () -> p.setMaxProducersPerTopic(n, 3),
                () -> p.getMaxProducersPerTopic(n), () -> p.removeMaxProducersPerTopic(n));
        namespace(stage, "consumers", () -> p.setMaxConsumersPerTopic(n, 3),
                () -> p.getMaxConsumersPerTopic(n), () -> p.removeMaxConsumersPerTopic(n));
        namespace(stage, "subscriptions", () -> p.setMaxSubscriptionsPerTopic(n, 3),
                () -> p.getMaxSubscriptionsPerTopic(n), () -> p.removeMaxSubscriptionsPerTopic(n));
        namespace(stage, "topics", () -> p.setMaxTopicsPerNamespace(n, 3),
                () -> p.getMaxTopicsPerNamespace(n), () -> p.removeMaxTopicsPerNamespace(n));
        namespace(stage, "deduplication", () -> p.setDeduplicationStatus(n, true),
                () -> p.getDeduplicationStatus(n), () -> p.removeDeduplicationStatus(n));
        namespace(stage, "snapshots of deduplication",
                () -> p.setDeduplicationSnapshotInterval(n, 7),
                () -> p.getDeduplicationSnapshotInterval(n),
                () -> p.removeDeduplicationSnapshotInterval(n));
        namespace(stage, "types", () -> p.setSubscriptionTypesEnabled(n, TYPES),
                () -> p.getSubscriptionTypesEnabled(n), () -> p.removeSubscriptionTypesEnabled(n));
        namespace(stage, "automatic topics", () -> p.setAutoTopicCreation(n, TOPICS),
                () -> p.getAutoTopicCreation(n), () -> p.removeAutoTopicCreation(n));
        namespace(stage, "automatic subscriptions",
                () -> p.setAutoSubscriptionCreation(n, SUBSCRIPTIONS),
                () -> p.getAutoSubscriptionCreation(n),
                () -> p.removeAutoSubscriptionCreation(n));
        namespace(stage, "schemas",
                () -> p.setSchemaCompatibilityStrategy(n, SchemaCompatibilityStrategy.FULL),
                () -> p.getSchemaCompatibilityStrategy(n), null);
        namespace(stage, "validation of schemas", () -> p.setSchemaValidationEnforced(n, true),
                () -> p.getSchemaValidationEnforced(n), null);
        namespace(stage, "updates of schemas", () -> p.setIsAllowAutoUpdateSchema(n, false),
                () -> p.getIsAllowAutoUpdateSchema(n), null);
        namespace(stage, "encryption", () -> p.setEncryptionRequiredStatus(n, true),
                () -> p.getEncryptionRequiredStatus(n), null);
        namespace(stage, "names of subscriptions",
                () -> p.setSubscriptionAuthMode(n, SubscriptionAuthMode.Prefix),
                () -> p.getSubscriptionAuthMode(n), null);
        namespace(stage, "anti-affinity", () -> p.setNamespaceAntiAffinityGroup(n, "g"),
                () -> p.getNamespaceAntiAffinityGroup(n),
                () -> p.deleteNamespaceAntiAffinityGroup(n));
        namespace(stage, "properties", () -> p.setProperty(n, "k", "v"),
                () -> p.getProperties(n), () -> p.clearProperties(n));
        stage.see("negative", List.of(
                told(() -> done(() -> p.setMaxProducersPerTopic(n, -1))),
                told(() -> done(() -> p.setNamespaceMessageTTL(n, -1))),
                told(() -> done(() -> p.setSubscriptionExpirationTime(n, -1)))));
        stage.see("of none", told(() -> p.getRetention(n + "-absent")));
    }
}
