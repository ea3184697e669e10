package main

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

var subscriptionTypes = []pulsar.SubscriptionType{
	pulsar.Exclusive, pulsar.Shared, pulsar.Failover, pulsar.KeyShared,
}
var typeNames = []string{"Exclusive", "Shared", "Failover", "KeyShared"}

func init() {
	register("exclusive", exclusive)
	register("failover", failover)
	register("shared", shared)
	register("key-shared-auto", keySharedAuto)
	register("key-shared-sticky", keySharedSticky)
	register("several-subscriptions", severalSubscriptions)
	register("unsubscribe", unsubscribe)
	register("zero-queue-consumer", zeroQueue)
}

func exclusive(s *stage) {
	first := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic("")})
	for i, kind := range subscriptionTypes {
		_, err := s.trySubscribe(pulsar.ConsumerOptions{Topic: s.topic(""), Type: kind})
		s.seeError("a second consumer, "+typeNames[i], err)
	}
	s.send(s.plain(s.topic("")), numbered("message ", 3)...)
	s.see("first got", texts(s.receive(first, 3)))
	first.Close()
	second := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic("")})
	for _, message := range s.receiveAndAck(second, 3) {
		s.seeMessage("second got", message)
	}
}

type toldActive struct {
	lock sync.Mutex
	last map[string]string
}

func (t *toldActive) BecameActive(consumer pulsar.Consumer, _ string, _ int32) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.last[consumer.Name()] = "active"
}

func (t *toldActive) BecameInactive(consumer pulsar.Consumer, _ string, _ int32) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.last[consumer.Name()] = "inactive"
}

func (t *toldActive) active() []string {
	t.lock.Lock()
	defer t.lock.Unlock()
	var names []string
	for name, what := range t.last {
		if what == "active" {
			names = append(names, name)
		}
	}
	return sorted(names)
}

func failover(s *stage) {
	told := &toldActive{last: map[string]string{}}
	consumers := map[string]pulsar.Consumer{}
	for _, name := range []string{"b", "a", "c"} {
		consumers[name] = s.subscribe(pulsar.ConsumerOptions{
			Topic: s.topic(""), Type: pulsar.Failover, Name: name, EventListener: told,
		})
	}
	producer := s.plain(s.topic(""))
	for len(consumers) > 0 {
		time.Sleep(2 * time.Second)
		s.see("told active", told.active())
		s.send(producer, numbered(fmt.Sprintf("with %d left ", len(consumers)), 5)...)
		active := ""
		var names []string
		var left []pulsar.Consumer
		for _, name := range []string{"a", "b", "c"} {
			if consumer, there := consumers[name]; there {
				names = append(names, name)
				left = append(left, consumer)
			}
		}
		for i, got := range s.together(left, 5) {
			if len(got) > 0 {
				s.see(names[i]+" got", texts(got))
				active = names[i]
			}
		}
		check(active != "", "nobody got anything")
		consumers[active].Close()
		delete(consumers, active)
		delete(told.last, active)
	}
}

func shared(s *stage) {
	var consumers []pulsar.Consumer
	for range 3 {
		consumers = append(consumers, s.subscribe(pulsar.ConsumerOptions{
			Topic: s.topic(""), Type: pulsar.Shared,
		}))
	}
	producer := s.plain(s.topic(""))
	for i := range 60 {
		s.send(producer, fmt.Sprint("message ", 100+i))
	}
	var together []string
	for _, part := range s.together(consumers, 60) {
		got := texts(part)
		check(len(got) > 0, "a consumer got nothing")
		s.see("in order", sort.StringsAreSorted(got))
		together = append(together, got...)
	}
	s.see("together", sorted(together))
}

func keySharedAuto(s *stage) {
	var consumers []pulsar.Consumer
	for i := range 2 {
		consumers = append(consumers, s.subscribe(pulsar.ConsumerOptions{
			Topic: s.topic(""), Type: pulsar.KeyShared, Name: fmt.Sprint("c", i),
		}))
	}
	producer := s.produce(pulsar.ProducerOptions{
		Topic: s.topic(""), BatcherBuilderType: pulsar.KeyBasedBatchBuilder,
	})
	for i := range 240 {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{
			Payload: fmt.Append(nil, i), Key: fmt.Sprintf("key-%d", i%24),
		}, nil)
	}
	must(producer.Flush())
	owners := map[string]map[int]bool{}
	order := map[string][]string{}
	for i, got := range s.together(consumers, 240) {
		check(len(got) > 0, "a consumer got nothing")
		for _, message := range got {
			if owners[message.Key()] == nil {
				owners[message.Key()] = map[int]bool{}
			}
			owners[message.Key()][i] = true
			order[message.Key()] = append(order[message.Key()], string(message.Payload()))
		}
	}
	counts := map[string]int{}
	for key, names := range owners {
		counts[key] = len(names)
	}
	s.see("owners of each key", counts)
	s.see("order within a key", order)
}

func keySharedSticky(s *stage) {
	subscribe := func(from int, to int) (pulsar.Consumer, error) {
		policy, err := pulsar.NewKeySharedPolicySticky([]int{from, to})
		must(err)
		return s.trySubscribe(pulsar.ConsumerOptions{
			Topic: s.topic(""), Type: pulsar.KeyShared, KeySharedPolicy: policy,
		})
	}
	low, err := subscribe(0, 30000)
	must(err)
	high, err := subscribe(30001, 65535)
	must(err)
	_, err = subscribe(100, 200)
	s.seeError("overlapping", err)
	producer := s.plain(s.topic(""))
	for i := range 40 {
		_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{
			Payload: fmt.Append(nil, i), Key: fmt.Sprintf("key-%d", i),
		})
		must(err)
	}
	parts := s.together([]pulsar.Consumer{low, high}, 40)
	s.see("low", texts(parts[0]))
	s.see("high", texts(parts[1]))
}

func severalSubscriptions(s *stage) {
	early := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic("")})
	producer := s.plain(s.topic(""))
	s.send(producer, numbered("before ", 2)...)
	late := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic(""), SubscriptionName: "late"})
	fromStart := s.subscribe(pulsar.ConsumerOptions{
		Topic: s.topic(""), SubscriptionName: "start",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	s.send(producer, numbered("after ", 2)...)
	s.see("early", s.gets(early, 4))
	s.see("late", s.gets(late, 2))
	s.see("from start", s.gets(fromStart, 4))
}

func unsubscribe(s *stage) {
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic("")})
	s.send(s.plain(s.topic("")), numbered("message ", 2)...)
	s.see("first got", texts(s.receive(consumer, 1)))
	s.seeError("unsubscribe", consumer.Unsubscribe())
	again := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic("")})
	s.see("a new one of the name", texts(s.untilSilence(again, silence)))
	options := pulsar.ConsumerOptions{
		Topic: s.topic(""), Type: pulsar.Shared, SubscriptionName: "shared",
	}
	one, other := s.subscribe(options), s.subscribe(options)
	s.seeError("with another one there", one.Unsubscribe())
	other.Close()
	s.seeError("alone", one.Unsubscribe())
}

func zeroQueue(s *stage) {
	consumer := s.subscribe(pulsar.ConsumerOptions{
		Topic: s.topic(""), Type: pulsar.Shared, EnableZeroQueueConsumer: true,
	})
	s.send(s.plain(s.topic("")), numbered("", 20)...)
	other := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic(""), Type: pulsar.Shared})
	s.see("other", s.gets(other, 20))
	s.see("first", texts(s.untilSilence(consumer, silence)))
}
