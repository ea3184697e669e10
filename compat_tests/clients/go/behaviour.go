package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

func init() {
	register("behaviour-of-a-topic", behaviourOfATopic)
	register("deduplication", deduplication)
	register("schema-policies", schemaPolicies)
	register("automatic-creation", automaticCreation)
	register("limits-of-unacknowledged", limitsOfUnacknowledged)
}

var kindsOfSubscriptions = []struct {
	name string
	kind pulsar.SubscriptionType
}{
	{"Exclusive", pulsar.Exclusive},
	{"Shared", pulsar.Shared},
	{"Failover", pulsar.Failover},
	{"KeyShared", pulsar.KeyShared},
}

// behaviourOfATopic: delays, types of subscriptions, and their automatic creation.
func behaviourOfATopic(s *stage) {
	p := newPlace(s)
	ctx, topic := context.Background(), p.topicName("t")
	delayed := func(delay time.Duration) any {
		// The client sends a message that is refused again and again, until its time is over.
		producer := s.produce(pulsar.ProducerOptions{
			Topic: p.topic, DisableBatching: true, SendTimeout: time.Second,
		})
		defer producer.Close()
		_, err := producer.Send(ctx, &pulsar.ProducerMessage{
			Payload: []byte("x"), DeliverAfter: delay,
		})
		return errorName(err)
	}
	s.see("any delay", delayed(10*time.Second))
	// The client has an older name of the bound; a server that does not know it sets none.
	must(p.policies.SetDelayedDelivery(ctx, topic, utils.DelayedDeliveryData{
		Active: true, TickTime: 1_000, MaxDelayInMillis: 5_000,
	}))
	p.until("kept", utils.DelayedDeliveryData{Active: true, TickTime: 1_000}, func() any {
		return answer(p.policies.GetDelayedDelivery(ctx, topic, false))
	})
	s.see("any delay with it", delayed(10*time.Second))
	s.set("POST", p.ofTopic+"/delayedDelivery",
		`{"active": true, "tickTime": 1000, "maxDeliveryDelayInMillis": 5000}`)
	p.until("a longer delay", "TimeoutError", func() any { return delayed(10 * time.Second) })
	s.see("a shorter delay", delayed(3*time.Second))
	must(p.policies.RemoveDelayedDelivery(ctx, topic))
	p.until("any delay again", nil, func() any { return delayed(10 * time.Second) })

	subscribing := func(kind pulsar.SubscriptionType, name string) any {
		consumer, err := s.trySubscribe(pulsar.ConsumerOptions{
			Topic: p.topic, Type: kind, SubscriptionName: name,
		})
		if err == nil {
			consumer.Close()
		}
		return errorName(err)
	}
	s.set("POST", p.ofTopic+"/subscriptionTypesEnabled", `["Shared", "Failover"]`)
	p.until("an exclusive one", "NotAllowedError",
		func() any { return subscribing(pulsar.Exclusive, "of") })
	for _, each := range kindsOfSubscriptions {
		s.see(each.name, subscribing(each.kind, "of-"+each.name))
	}
	s.set("DELETE", p.ofTopic+"/subscriptionTypesEnabled", "")
	p.until("an exclusive one again", nil,
		func() any { return subscribing(pulsar.Exclusive, "of") })
	must(p.policies.SetAutoSubscriptionCreation(
		ctx, topic, utils.AutoSubscriptionCreationOverride{}))
	p.until("allowed", utils.AutoSubscriptionCreationOverride{}, func() any {
		return answer(p.policies.GetAutoSubscriptionCreation(ctx, topic, true))
	})
	s.see("a new subscription", subscribing(pulsar.Shared, "new"))
	s.see("one that is there", subscribing(pulsar.Exclusive, "of"))
	must(p.policies.RemoveAutoSubscriptionCreation(ctx, topic))
	p.until("a new one again", nil, func() any { return subscribing(pulsar.Shared, "new") })
}

// deduplication of the namespace, and of the topic against it.
func deduplication(s *stage) {
	p := newPlace(s)
	ctx, topic := context.Background(), p.topicName("t")
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: p.topic})
	number := 0
	sentTwice := func() any {
		number++
		producer := s.produce(pulsar.ProducerOptions{
			Topic: p.topic, DisableBatching: true, Name: fmt.Sprintf("p%d", number),
		})
		defer producer.Close()
		for _, text := range []string{"a", "a", "b"} {
			id := int64(1)
			if text == "b" {
				id = 2
			}
			_, err := producer.Send(ctx,
				&pulsar.ProducerMessage{Payload: []byte(text), SequenceID: &id})
			must(err)
		}
		return texts(s.untilSilence(consumer, 200*time.Millisecond))
	}
	once, twice := []string{"a", "b"}, []string{"a", "a", "b"}
	s.see("of nobody", sentTwice())
	must(p.admin.Namespaces().SetDeduplicationStatus(p.namespace, true))
	p.until("of the namespace", once, sentTwice)
	must(p.policies.SetDeduplicationStatus(ctx, topic, false))
	p.until("of the topic", twice, sentTwice)
	must(p.policies.RemoveDeduplicationStatus(ctx, topic))
	p.until("of the namespace again", once, sentTwice)
}

const (
	smallRecord = `{"type":"record","name":"R","fields":[{"name":"number","type":"int"}]}`
	largeRecord = `{"type":"record","name":"R","fields":[{"name":"number","type":"int"},` +
		`{"name":"more","type":"long"}]}`
)

// schemaPolicies: which schemas come next to that of a topic, and whether producers need one.
func schemaPolicies(s *stage) {
	p := newPlace(s)
	ctx, topic := context.Background(), p.topicName("t")
	producing := func(schema pulsar.Schema) any {
		producer, err := s.client().CreateProducer(
			pulsar.ProducerOptions{Topic: p.topic, Schema: schema})
		if err == nil {
			producer.Close()
		}
		return errorName(err)
	}
	small := pulsar.NewJSONSchema(smallRecord, nil)
	large := pulsar.NewJSONSchema(largeRecord, nil)
	s.see("the first", producing(small))
	for _, strategy := range []utils.SchemaCompatibilityStrategy{
		utils.SchemaCompatibilityStrategyAlwaysIncompatible,
		utils.SchemaCompatibilityStrategyForward,
	} {
		must(p.policies.SetSchemaCompatibilityStrategy(ctx, topic, strategy))
		p.until("strategy", strategy, func() any {
			return answer(p.policies.GetSchemaCompatibilityStrategy(ctx, topic, true))
		})
		s.see("the same", producing(small))
		s.see("another", producing(pulsar.NewStringSchema(nil)))
		s.see("more", producing(large))
	}
	must(p.policies.RemoveSchemaCompatibilityStrategy(ctx, topic))
	s.see("without a schema", producing(nil))
	must(p.admin.Namespaces().SetSchemaValidationEnforced(p.namespaceName(), true))
	p.until("enforced", "IncompatibleSchema", func() any { return producing(nil) })
	must(p.policies.SetSchemaValidationEnforced(ctx, topic, true))
	must(p.admin.Namespaces().SetSchemaValidationEnforced(p.namespaceName(), false))
	p.until("validation", true, func() any {
		return answer(p.policies.GetSchemaValidationEnforced(ctx, topic, true))
	})
	p.until("enforced for the topic", "IncompatibleSchema", func() any { return producing(nil) })
	must(p.policies.SetSchemaValidationEnforced(ctx, topic, false))
	p.until("no longer enforced", nil, func() any { return producing(nil) })
}

// automaticCreation of topics and subscriptions of a namespace, by clients alone.
func automaticCreation(s *stage) {
	p := newPlace(s)
	base := "persistent://" + p.namespace + "/"
	namespaces := p.admin.Namespaces()
	producing := func(name string) any {
		_, err := s.client().CreateProducer(pulsar.ProducerOptions{Topic: base + name})
		return errorName(err)
	}
	subscribing := func(name string, subscription string) any {
		_, err := s.trySubscribe(pulsar.ConsumerOptions{
			Topic: base + name, SubscriptionName: subscription,
		})
		return errorName(err)
	}
	partitions := func(name string) any {
		names, err := s.client().TopicPartitions(base + name)
		must(err)
		return len(names)
	}
	must(namespaces.SetTopicAutoCreation(
		p.namespaceName(), utils.TopicAutoCreationConfig{Allow: false}))
	s.see("a producer", producing("a"))
	s.see("a consumer", subscribing("a", "s"))
	three := 3
	must(namespaces.SetTopicAutoCreation(p.namespaceName(), utils.TopicAutoCreationConfig{
		Allow: true, Type: utils.Partitioned, Partitions: &three,
	}))
	s.see("a producer of three", producing("b"))
	s.see("partitions", partitions("b"))
	must(namespaces.RemoveTopicAutoCreation(p.namespaceName()))
	s.see("a producer of one", producing("c"))
	s.see("partition", partitions("c"))
	path := p.ofNamespace + "/autoSubscriptionCreation"
	s.set("POST", path, `{"allowAutoSubscriptionCreation": false}`)
	s.see("a subscription", subscribing("c", "s"))
	must(p.admin.Subscriptions().Create(p.topicName("c"), "s", utils.Latest))
	s.see("one that is there", subscribing("c", "s"))
	s.set("DELETE", path, "")
	s.see("a new one", subscribing("c", "new"))
}

// limitsOfUnacknowledged: what is above the limit waits for acknowledgements.
func limitsOfUnacknowledged(s *stage) {
	p := newPlace(s)
	ctx, topic := context.Background(), p.topicName("t")
	var consumers []pulsar.Consumer
	for range 2 {
		consumers = append(consumers, s.subscribe(pulsar.ConsumerOptions{
			Topic: p.topic, Type: pulsar.Shared, ReceiverQueueSize: 1,
		}))
	}
	must(p.policies.SetMaxUnackMessagesPerConsumer(ctx, topic, 5))
	p.until("of a consumer", 5, func() any {
		return answer(p.policies.GetMaxUnackMessagesPerConsumer(ctx, topic, true))
	})
	p.unacknowledged(consumers)
	must(p.policies.RemoveMaxUnackMessagesPerConsumer(ctx, topic))
	s.set("POST", p.ofNamespace+"/maxUnackedMessagesPerSubscription", "6")
	p.until("of a subscription", 6, func() any {
		return answer(p.policies.GetMaxUnackMessagesPerSubscription(ctx, topic, true))
	})
	p.unacknowledged(consumers)
}

// unacknowledged: of 40 messages some wait until those before them are acknowledged; none is lost. Real
// Pulsar may send a few more than the limit when two consumers are served at once.
func (p *place) unacknowledged(consumers []pulsar.Consumer) {
	p.send(p.plain(p.topic), numbered("", 40)...)
	all := map[string]bool{}
	first := make([][]pulsar.Message, len(consumers))
	for i, consumer := range consumers {
		for message := tryReceive(consumer, 400*time.Millisecond); message != nil; {
			all[string(message.Payload())] = true
			first[i] = append(first[i], message)
			message = tryReceive(consumer, 400*time.Millisecond)
		}
	}
	p.see("some wait", len(all) >= 5 && len(all) < 30)
	for i, messages := range first {
		for _, message := range messages {
			must(consumers[i].Ack(message))
		}
	}
	for _, part := range p.together(consumers, 40-len(all)) {
		for _, message := range part {
			all[string(message.Payload())] = true
		}
	}
	p.see("all", len(all))
}
