package main

import (
	"context"

	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

func init() {
	register("policies-of-namespaces", policiesOfNamespaces)
	register("policies-of-topics", policiesOfTopics)
}

var (
	someQuota    = utils.NewBacklogQuota(1_000, 9, utils.ConsumerBacklogEviction)
	someRate     = utils.DispatchRateData{DispatchThrottlingRateInMsg: 9, DispatchThrottlingRateInByte: 99, RatePeriodInSecond: 2, RelativeToPublishRate: true}
	caughtUp     = utils.DeleteWhenSubscriptionsCaughtUp
	someInactive = utils.NewInactiveTopicPolicies(&caughtUp, 77, true)
	fourTopics   = 4
)

// What applies without them is in the configuration, and the servers' own differ.
var ofTheBroker = map[string]bool{"backlog quotas": true, "persistence": true}

// topicPolicy is not set, set, in force, and removed. Real Pulsar shows it a little after its answer.
func topicPolicy[T any, V any](
	p *place, name string, value T,
	set func(context.Context, utils.TopicName, T) error,
	get func(context.Context, utils.TopicName, bool) (V, error),
	remove func(context.Context, utils.TopicName) error,
) {
	ctx, topic := context.Background(), p.topicName("t")
	look := func(applied bool) func() any {
		return func() any { return answer(get(ctx, topic, applied)) }
	}
	unset := look(false)()
	p.see(name, unset)
	if !ofTheBroker[name] {
		p.see("applied", look(true)())
	}
	p.see("set", status(set(ctx, topic, value)))
	p.until("kept", value, look(false))
	p.see("applied", look(true)())
	removed := status(remove(ctx, topic))
	p.see("removed", removed)
	if removed == nil {
		p.until("left", unset, look(false))
	}
}

func policiesOfTopics(s *stage) {
	p := newPlace(s)
	of := p.policies
	topicPolicy(p, "time to live", 8, of.SetMessageTTL, of.GetMessageTTL, of.RemoveMessageTTL)
	topicPolicy(p, "producers", 3, of.SetMaxProducers, of.GetMaxProducers, of.RemoveMaxProducers)
	topicPolicy(p, "consumers", 3, of.SetMaxConsumers, of.GetMaxConsumers, of.RemoveMaxConsumers)
	topicPolicy(p, "unacked of a consumer", 8, of.SetMaxUnackMessagesPerConsumer,
		of.GetMaxUnackMessagesPerConsumer, of.RemoveMaxUnackMessagesPerConsumer)
	topicPolicy(p, "unacked of a subscription", 9, of.SetMaxUnackMessagesPerSubscription,
		of.GetMaxUnackMessagesPerSubscription, of.RemoveMaxUnackMessagesPerSubscription)
	topicPolicy(p, "persistence", utils.PersistenceData{
		BookkeeperEnsemble: 1, BookkeeperWriteQuorum: 1, BookkeeperAckQuorum: 1,
		ManagedLedgerMaxMarkDeleteRate: 2,
	}, of.SetPersistence, of.GetPersistence, of.RemovePersistence)
	topicPolicy(p, "delayed delivery", utils.DelayedDeliveryData{Active: true, TickTime: 2_000},
		of.SetDelayedDelivery, of.GetDelayedDelivery, of.RemoveDelayedDelivery)
	topicPolicy(p, "dispatch rate", someRate,
		of.SetDispatchRate, of.GetDispatchRate, of.RemoveDispatchRate)
	topicPolicy(p, "of subscriptions", someRate, of.SetSubscriptionDispatchRate,
		of.GetSubscriptionDispatchRate, of.RemoveSubscriptionDispatchRate)
	topicPolicy(p, "of replicators", someRate, of.SetReplicatorDispatchRate,
		of.GetReplicatorDispatchRate, of.RemoveReplicatorDispatchRate)
	topicPolicy(p, "publish rate",
		utils.PublishRateData{PublishThrottlingRateInMsg: 11, PublishThrottlingRateInByte: 12},
		of.SetPublishRate, of.GetPublishRate, of.RemovePublishRate)
	topicPolicy(p, "subscribe rate",
		utils.SubscribeRate{SubscribeThrottlingRatePerConsumer: 3, RatePeriodInSecond: 20},
		of.SetSubscribeRate, of.GetSubscribeRate, of.RemoveSubscribeRate)
	topicPolicy(p, "deduplication", true,
		of.SetDeduplicationStatus, of.GetDeduplicationStatus, of.RemoveDeduplicationStatus)
	topicPolicy(p, "snapshots of deduplication", 7, of.SetDeduplicationSnapshotInterval,
		of.GetDeduplicationSnapshotInterval, of.RemoveDeduplicationSnapshotInterval)
	topicPolicy(p, "retention", utils.NewRetentionPolicies(-1, -1),
		of.SetRetention, of.GetRetention, of.RemoveRetention)
	topicPolicy(p, "compaction", int64(4_096),
		of.SetCompactionThreshold, of.GetCompactionThreshold, of.RemoveCompactionThreshold)
	topicPolicy(p, "inactive topics", someInactive, of.SetInactiveTopicPolicies,
		of.GetInactiveTopicPolicies, of.RemoveInactiveTopicPolicies)
	topicPolicy(p, "replication", []string{"standalone"}, of.SetReplicationClusters,
		of.GetReplicationClusters, of.RemoveReplicationClusters)
	topicPolicy(p, "consumers of a subscription", 3, of.SetMaxConsumersPerSubscription,
		of.GetMaxConsumersPerSubscription, of.RemoveMaxConsumersPerSubscription)
	topicPolicy(p, "message size", 300,
		of.SetMaxMessageSize, of.GetMaxMessageSize, of.RemoveMaxMessageSize)
	topicPolicy(p, "subscriptions", 3, of.SetMaxSubscriptionsPerTopic,
		of.GetMaxSubscriptionsPerTopic, of.RemoveMaxSubscriptionsPerTopic)
	topicPolicy(p, "validation of schemas", true, of.SetSchemaValidationEnforced,
		of.GetSchemaValidationEnforced, of.RemoveSchemaValidationEnforced)
	topicPolicy(p, "schemas", utils.SchemaCompatibilityStrategyFull,
		of.SetSchemaCompatibilityStrategy, of.GetSchemaCompatibilityStrategy,
		of.RemoveSchemaCompatibilityStrategy)
	topicPolicy(p, "automatic subscriptions", utils.AutoSubscriptionCreationOverride{},
		of.SetAutoSubscriptionCreation, of.GetAutoSubscriptionCreation,
		of.RemoveAutoSubscriptionCreation)
	quotas := map[utils.BacklogQuotaType]utils.BacklogQuota{utils.MessageAge: someQuota}
	topicPolicy(p, "backlog quotas", quotas,
		func(ctx context.Context, topic utils.TopicName, _ map[utils.BacklogQuotaType]utils.BacklogQuota) error {
			return of.SetBacklogQuota(ctx, topic, someQuota, utils.MessageAge)
		},
		of.GetBacklogQuotaMap,
		func(ctx context.Context, topic utils.TopicName) error {
			return of.RemoveBacklogQuota(ctx, topic, utils.MessageAge)
		})
}

// namespacePolicy is not set, set, and removed if the client can.
func (p *place) namespacePolicy(
	name string, set func() error, look func() any, remove func() error,
) {
	p.see(name, look())
	p.see("set", status(set()))
	p.see("kept", look())
	if remove != nil {
		p.see("removed", status(remove()))
		p.see("left", look())
	}
}

func policiesOfNamespaces(s *stage) {
	p := newPlace(s)
	of, text, name := p.admin.Namespaces(), p.namespace, p.namespaceName()
	rate := utils.DispatchRate{
		DispatchThrottlingRateInMsg: 9, DispatchThrottlingRateInByte: 99, RatePeriodInSecond: 2,
	}
	p.namespacePolicy("time to live",
		func() error { return of.SetNamespaceMessageTTL(text, 8) },
		func() any { return answer(of.GetNamespaceMessageTTL(text)) },
		func() error { return of.RemoveNamespaceMessageTTL(text) })
	p.namespacePolicy("expiration",
		func() error { return of.SetSubscriptionExpirationTime(name, 8) },
		func() any { return answer(of.GetSubscriptionExpirationTime(name)) },
		func() error { return of.RemoveSubscriptionExpirationTime(name) })
	p.namespacePolicy("retention",
		func() error { return of.SetRetention(text, utils.NewRetentionPolicies(-1, -1)) },
		func() any { return answer(of.GetRetention(text)) },
		func() error { return of.RemoveRetention(text) })
	p.namespacePolicy("backlog quotas",
		func() error { return of.SetBacklogQuota(text, someQuota, utils.DestinationStorage) },
		func() any { return answer(of.GetBacklogQuotaMap(text)) },
		func() error { return of.RemoveBacklogQuota(text) })
	p.namespacePolicy("persistence",
		func() error { return of.SetPersistence(text, utils.NewPersistencePolicies(1, 1, 1, 2)) },
		func() any { return answer(of.GetPersistence(text)) },
		func() error { return of.RemovePersistence(text) })
	p.namespacePolicy("automatic topics",
		func() error {
			return of.SetTopicAutoCreation(name, utils.TopicAutoCreationConfig{
				Allow: true, Type: utils.Partitioned, Partitions: &fourTopics,
			})
		},
		func() any { return answer(of.GetTopicAutoCreation(name)) },
		func() error { return of.RemoveTopicAutoCreation(name) })
	p.namespacePolicy("inactive topics",
		func() error { return of.SetInactiveTopicPolicies(name, someInactive) },
		func() any { return answer(of.GetInactiveTopicPolicies(name)) },
		func() error { return of.RemoveInactiveTopicPolicies(name) })
	p.namespacePolicy("consumers of a subscription",
		func() error { return of.SetMaxConsumersPerSubscription(name, 3) },
		func() any { return answer(of.GetMaxConsumersPerSubscription(name)) },
		func() error { return of.RemoveMaxConsumersPerSubscription(name) })
	p.namespacePolicy("consumers",
		func() error { return of.SetMaxConsumersPerTopic(name, 3) },
		func() any { return answer(of.GetMaxConsumersPerTopic(name)) },
		func() error { return of.RemoveMaxConsumersPerTopic(name) })
	p.namespacePolicy("producers",
		func() error { return of.SetMaxProducersPerTopic(name, 3) },
		func() any { return answer(of.GetMaxProducersPerTopic(name)) },
		func() error { return of.RemoveMaxProducersPerTopic(name) })
	p.namespacePolicy("topics",
		func() error { return of.SetMaxTopicsPerNamespace(name, 3) },
		func() any { return answer(of.GetMaxTopicsPerNamespace(name)) },
		func() error { return of.RemoveMaxTopicsPerNamespace(name) })
	p.namespacePolicy("properties",
		func() error { return of.UpdateProperties(name, map[string]string{"k": "v"}) },
		func() any { return answer(of.GetProperties(name)) },
		func() error { return of.RemoveProperties(name) })
	p.namespacePolicy("anti-affinity",
		func() error { return of.SetNamespaceAntiAffinityGroup(text, "g") },
		func() any { return answer(of.GetNamespaceAntiAffinityGroup(text)) },
		func() error { return of.DeleteNamespaceAntiAffinityGroup(text) })
	p.namespacePolicy("compaction",
		func() error { return of.SetCompactionThreshold(name, 4_096) },
		func() any { return answer(of.GetCompactionThreshold(name)) }, nil)
	p.namespacePolicy("dispatch rate",
		func() error { return of.SetDispatchRate(name, rate) },
		func() any { return answer(of.GetDispatchRate(name)) }, nil)
	p.namespacePolicy("of subscriptions",
		func() error { return of.SetSubscriptionDispatchRate(name, rate) },
		func() any { return answer(of.GetSubscriptionDispatchRate(name)) }, nil)
	p.namespacePolicy("of replicators",
		func() error { return of.SetReplicatorDispatchRate(name, rate) },
		func() any { return answer(of.GetReplicatorDispatchRate(name)) }, nil)
	p.namespacePolicy("publish rate",
		func() error {
			return of.SetPublishRate(name, utils.PublishRate{
				PublishThrottlingRateInMsg: 11, PublishThrottlingRateInByte: 12,
			})
		},
		func() any { return answer(of.GetPublishRate(name)) }, nil)
	p.namespacePolicy("subscribe rate",
		func() error {
			return of.SetSubscribeRate(name, utils.SubscribeRate{
				SubscribeThrottlingRatePerConsumer: 3, RatePeriodInSecond: 20,
			})
		},
		func() any { return answer(of.GetSubscribeRate(name)) }, nil)
	p.namespacePolicy("schemas",
		func() error {
			return of.SetSchemaCompatibilityStrategy(name, utils.SchemaCompatibilityStrategyFull)
		},
		func() any { return answer(of.GetSchemaCompatibilityStrategy(name)) }, nil)
	p.namespacePolicy("validation of schemas",
		func() error { return of.SetSchemaValidationEnforced(name, true) },
		func() any { return answer(of.GetSchemaValidationEnforced(name)) }, nil)
	p.namespacePolicy("updates of schemas",
		func() error { return of.SetIsAllowAutoUpdateSchema(name, false) },
		func() any { return answer(of.GetIsAllowAutoUpdateSchema(name)) }, nil)
	p.namespacePolicy("deduplication",
		func() error { return of.SetDeduplicationStatus(text, true) },
		func() any {
			policies, err := of.GetPolicies(text)
			must(err)
			return policies.DeduplicationEnabled
		}, nil)
	s.see("encryption", status(of.SetEncryptionRequiredStatus(name, true)))
	s.see("names of subscriptions", status(of.SetSubscriptionAuthMode(name, utils.Prefix)))
	s.see("negative", []any{
		status(of.SetMaxProducersPerTopic(name, -1)), status(of.SetNamespaceMessageTTL(text, -1)),
	})
	s.see("of none", answer(of.GetRetention(text+"-absent")))
}
