package main

import (
	"context"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

const backlogLimit = 10_240

func init() {
	register("backlog-quota-of-size", backlogQuotaOfSize)
	register("backlog-quota-with-eviction", backlogQuotaWithEviction)
	register("backlog-quota-of-age", backlogQuotaOfAge)
	register("retention", retention)
}

func quotaOf(bytes int64, seconds int64, policy utils.RetentionPolicy) utils.BacklogQuota {
	return utils.NewBacklogQuota(bytes, seconds, policy)
}

// checked are the statistics after the server was asked to look at backlogs: real Pulsar does it once
// a minute, and Vela also while messages are published.
func (p *place) checked() utils.TopicStats {
	_ = p.http("GET", "/admin/v2/brokers/backlog-quota-check", "")
	stats, err := p.admin.Topics().GetStats(p.topicName("t"))
	must(err)
	return stats
}

func (p *place) creating() any {
	producer, err := p.newClient().CreateProducer(pulsar.ProducerOptions{Topic: p.topic})
	if err == nil {
		producer.Close()
	}
	return errorName(err)
}

func (p *place) leaves(subscription string) {
	consumer, err := p.trySubscribe(
		pulsar.ConsumerOptions{Topic: p.topic, SubscriptionName: subscription})
	must(err)
	consumer.Close()
}

// backlogQuotaOfSize: producers leave at the limit, and return when there is room.
func backlogQuotaOfSize(s *stage) {
	p := newPlace(s)
	p.leaves("s")
	for _, policy := range []utils.RetentionPolicy{
		utils.ProducerException, utils.ProducerRequestHold,
	} {
		must(p.admin.Namespaces().SetBacklogQuota(
			p.namespace, quotaOf(backlogLimit, 0, policy), utils.DestinationStorage))
		producer := s.alone(p.topic)
		s.sends(producer, 10, 1_024)()
		p.until("publishers at the limit", 0, func() any { return len(p.checked().Publishers) })
		late := make(chan error, 1)
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte("late")},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { late <- err })
		s.see("another one", p.creating())
		if policy == utils.ProducerException {
			s.seeError("one more message", <-late)
		}
		must(p.admin.Subscriptions().ClearBacklog(p.topicName("t"), "s"))
		p.until("another one with room", nil, p.creating)
		if policy == utils.ProducerRequestHold {
			s.seeError("one more message", <-late)
		}
		producer.Close()
	}
}

// backlogQuotaWithEviction: the newest messages are kept, and producers stay.
func backlogQuotaWithEviction(s *stage) {
	p := newPlace(s)
	p.leaves("s")
	ctx, topic := context.Background(), p.topicName("t")
	must(p.policies.SetBacklogQuota(ctx, topic,
		quotaOf(backlogLimit, 0, utils.ConsumerBacklogEviction), utils.DestinationStorage))
	p.until("in force", utils.ConsumerBacklogEviction, func() any {
		quotas, err := p.policies.GetBacklogQuotaMap(ctx, topic, true)
		must(err)
		return quotas[utils.DestinationStorage].Policy
	})
	producer := s.plain(p.topic)
	var payloads []string
	for number := range 20 {
		payload := make([]byte, 1_024)
		payload[0] = byte(number)
		payloads = append(payloads, string(payload))
	}
	s.send(producer, payloads...)
	p.until("evicted", true, func() any { return p.checked().BacklogSize < backlogLimit })
	s.see("another one", p.creating())
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: p.topic})
	kept := 1
	for s.receive(consumer, 1)[0].Payload()[0] != 19 {
		kept++
	}
	s.see("some are kept", kept > 5 && kept < 10)
}

// backlogQuotaOfAge: the age of a ledger counts from when it was closed.
func backlogQuotaOfAge(s *stage) {
	p := newPlace(s)
	p.leaves("s")
	producer := s.plain(p.topic)
	s.send(producer, "old")
	producer.Close()
	s.see("before the quota", p.creating())
	s.set("PUT", p.ofTopic+"/unload", "")
	p.checked() // It is closed when the topic is loaded again.
	time.Sleep(1_500 * time.Millisecond)
	ctx, topic := context.Background(), p.topicName("t")
	for _, each := range []struct {
		policy  utils.RetentionPolicy
		refused string
	}{
		{utils.ProducerException, "ProducerBlockedQuotaExceededException"},
		{utils.ProducerRequestHold, "ProducerBlockedQuotaExceededError"},
	} {
		must(p.policies.SetBacklogQuota(ctx, topic, quotaOf(0, 1, each.policy), utils.MessageAge))
		p.until("in a closed ledger", each.refused, p.creating)
	}
	must(p.policies.SetBacklogQuota(
		ctx, topic, quotaOf(0, 1, utils.ConsumerBacklogEviction), utils.MessageAge))
	p.until("a producer", nil, p.creating)
	s.send(s.plain(p.topic), "new")
	p.until("evicted", 1, func() any { return p.checked().Subscriptions["s"].MsgBacklog })
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: p.topic})
	s.see("left", texts(s.receive(consumer, 1)))
}

// retention: what is acknowledged is kept as long as the topic says.
func retention(s *stage) {
	p := newPlace(s)
	ctx, topic := context.Background(), p.topicName("t")
	kept := utils.NewRetentionPolicies(-1, -1)
	must(p.policies.SetRetention(ctx, topic, kept))
	p.until("in force", kept, func() any {
		return answer(p.policies.GetRetention(ctx, topic, true))
	})
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: p.topic})
	s.send(s.plain(p.topic), "old")
	s.receiveAndAck(consumer, 1)
	// Real Pulsar may lose an acknowledgement that is on its way in an unload.
	p.until("acknowledged", 0, func() any { return p.checked().Subscriptions["s"].MsgBacklog })
	s.closeClients()
	s.set("PUT", p.ofTopic+"/unload", "")
	p.checked() // Its ledger is closed when it is loaded again.
	trimmed := func() any {
		answered := s.http("POST", p.ofTopic+"/trim", "")
		check(strings.HasPrefix(answered, "20"), answered)
		return s.earliest(p.topic)
	}
	s.see("earliest", trimmed())
	must(p.policies.RemoveRetention(ctx, topic))
	p.until("removed", nil, func() any {
		return answer(p.policies.GetRetention(ctx, topic, false))
	})
	p.until("earliest", "nothing", trimmed)
}

func (s *stage) earliest(topic string) any {
	reader, err := s.client().CreateReader(pulsar.ReaderOptions{
		Topic: topic, StartMessageID: pulsar.EarliestMessageID(),
	})
	must(err)
	defer reader.Close()
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	message, err := reader.Next(ctx)
	if err != nil {
		return "nothing"
	}
	return string(message.Payload())
}
