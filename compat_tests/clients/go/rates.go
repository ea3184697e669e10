package main

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

const brokerRate = "brokerPublisherThrottlingMaxMessageRate"

func init() {
	register("publish-rate", publishRate)
	register("dispatch-rate", dispatchRate)
	register("subscribe-rate", subscribeRate)
	register("resource-group-publish-budget", resourceGroupBudget)
}

// alone is a producer on a connection of its own: a rate holds whole connections.
func (s *stage) alone(topic string) pulsar.Producer {
	producer, err := s.newClient().CreateProducer(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: true, SendTimeout: -1,
	})
	must(err)
	return producer
}

func (s *stage) sends(producer pulsar.Producer, count int, size int) func() any {
	payloads := make([]string, count)
	for i := range payloads {
		payloads[i] = string(make([]byte, size))
	}
	return func() any {
		s.send(producer, payloads...)
		return count
	}
}

// publishRate: of the topic by messages, of its namespace by bytes, of the broker. None is refused.
func publishRate(s *stage) {
	p := newPlace(s)
	ctx, topic := context.Background(), p.topicName("t")
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: p.topic})
	producer := s.alone(p.topic)
	ofTopic := utils.PublishRateData{PublishThrottlingRateInMsg: 100, PublishThrottlingRateInByte: -1}
	must(p.policies.SetPublishRate(ctx, topic, ofTopic))
	kept := func() any { return answer(p.policies.GetPublishRate(ctx, topic, false)) }
	p.until("kept", ofTopic, kept)
	s.held("by the topic's", s.sends(producer, 170, 1))
	must(p.policies.RemovePublishRate(ctx, topic))
	p.until("removed", nil, kept)
	ofNamespace := utils.PublishRate{
		PublishThrottlingRateInMsg: -1, PublishThrottlingRateInByte: 20_000,
	}
	must(p.admin.Namespaces().SetPublishRate(p.namespaceName(), ofNamespace))
	s.held("by the namespace's", s.sends(producer, 35, 1_000))
	s.set("DELETE", p.ofNamespace+"/publishRate", "")
	p.ofBroker("100")
	defer func() {
		p.ofBroker("0")
		must(p.admin.Brokers().DeleteDynamicConfiguration(brokerRate))
	}()
	s.held("by the broker's", s.sends(producer, 170, 1))
	p.ofBroker("0")
	s.quick("no longer held", s.sends(producer, 300, 1))
	sent := int(producer.LastSequenceID()) + 1
	check(sent >= 170+35+170+300, fmt.Sprintf("only %d were sent", sent))
	check(len(s.receiveAndAck(consumer, sent)) == sent, "not all came")
}

func (p *place) ofBroker(rate string) {
	must(p.admin.Brokers().UpdateDynamicConfiguration(brokerRate, rate))
	p.until("rate of the broker", rate, func() any {
		values, err := p.admin.Brokers().GetRuntimeConfigurations()
		must(err)
		return values[brokerRate]
	})
}

// dispatchRate: of the topic, of each subscription, and of one of them. Real Pulsar lets each dispatcher
// read up to a second's share before it counts what they sent, so each gets more than that.
func dispatchRate(s *stage) {
	p := newPlace(s)
	ctx, topic := context.Background(), p.topicName("t")
	exclusive := s.subscribe(pulsar.ConsumerOptions{Topic: p.topic})
	shared := s.subscribe(pulsar.ConsumerOptions{
		Topic: p.topic, SubscriptionName: "shared", Type: pulsar.Shared,
	})
	producer := s.alone(p.topic)
	receive := func(consumer pulsar.Consumer, count int) func() any {
		return func() any { return len(s.receiveAndAck(consumer, count)) }
	}
	both := func(count int) func() any {
		return func() any {
			s.sends(producer, count, 1)()
			return []any{receive(exclusive, count)(), receive(shared, count)()}
		}
	}
	rate := utils.DispatchRateData{
		DispatchThrottlingRateInMsg: 100, DispatchThrottlingRateInByte: -1, RatePeriodInSecond: 1,
	}
	must(p.policies.SetDispatchRate(ctx, topic, rate))
	p.until("of the topic", rate, func() any {
		return answer(p.policies.GetDispatchRate(ctx, topic, true))
	})
	s.held("both together", both(150))
	must(p.policies.RemoveDispatchRate(ctx, topic))
	must(p.admin.Namespaces().SetSubscriptionDispatchRate(p.namespaceName(), utils.DispatchRate{
		DispatchThrottlingRateInMsg: 100, DispatchThrottlingRateInByte: -1, RatePeriodInSecond: 1,
	}))
	p.until("of each subscription", rate, func() any {
		return answer(p.policies.GetSubscriptionDispatchRate(ctx, topic, true))
	})
	s.held("each", both(170))
	s.set("POST", p.ofTopic+"/shared/dispatchRate",
		`{"dispatchThrottlingRateInMsg": 100000, "ratePeriodInSecond": 1}`)
	time.Sleep(time.Second) // Pulsar has it in force a little later, and the client cannot ask.
	s.sends(producer, 170, 1)()
	s.quick("one", receive(shared, 170))
	s.held("the other one", receive(exclusive, 170))
}

// subscribeRate: a consumer that comes again too soon is refused, and another one is not.
func subscribeRate(s *stage) {
	p := newPlace(s)
	rate := utils.SubscribeRate{SubscribeThrottlingRatePerConsumer: 1, RatePeriodInSecond: 30}
	must(p.admin.Namespaces().SetSubscribeRate(p.namespaceName(), rate))
	p.until("in force", rate, func() any {
		return answer(p.policies.GetSubscribeRate(context.Background(), p.topicName("t"), true))
	})
	for number := range 2 {
		client := s.newClient()
		for _, name := range []string{"a", "b"} {
			consumer, err := client.Subscribe(pulsar.ConsumerOptions{
				Topic: p.topic, SubscriptionName: "s", Name: name,
			})
			s.seeError(fmt.Sprintf("%d %s", number, name), err)
			if err == nil {
				consumer.Close()
			}
		}
	}
}

// resourceGroupBudget: two namespaces of the group share it, and a third one is free.
func resourceGroupBudget(s *stage) {
	p := newPlace(s)
	group := "/admin/v2/resourcegroups/" + s.name()
	s.set("PUT", group, `{"publishRateInMsgs": 100}`)
	var producers []pulsar.Producer
	for _, name := range []string{"one", "two", "free"} {
		namespace := p.namespace + "-" + name
		must(p.admin.Namespaces().CreateNamespace(namespace))
		if name != "free" {
			s.set("POST", "/admin/v2/namespaces/"+namespace+"/resourcegroup/"+s.name(), "")
		}
		producers = append(producers, s.alone("persistent://"+namespace+"/t"))
	}
	s.held("together", func() any {
		done := make(chan any)
		for _, producer := range producers[:2] {
			go func() { done <- s.sends(producer, 90, 1)() }()
		}
		return []any{<-done, <-done}
	})
	s.quick("free", s.sends(producers[2], 90, 1))
	s.see("in use", s.http("DELETE", group, "")[:3])
	for _, name := range []string{"one", "two"} {
		s.set("DELETE", p.ofNamespace+"-"+name+"/resourcegroup", "")
	}
	s.set("DELETE", group, "")
}
