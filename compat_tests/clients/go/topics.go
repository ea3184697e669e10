package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const permitsMax = 30 * time.Second

func init() {
	register("partitioned", partitioned)
	register("several-topics", severalTopics)
	register("topics-by-pattern", topicsByPattern)
	register("non-persistent", nonPersistent)
}

func partitioned(s *stage) {
	topic := s.topic("")
	s.partition(topic, 4)
	partitions, err := s.client().TopicPartitions(topic)
	must(err)
	s.see("partitions", partitions)
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic})
	producer := s.plain(topic)
	for i := range 60 {
		_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{
			Payload: fmt.Append(nil, i), Key: fmt.Sprintf("key-%d", i%12),
		})
		must(err)
	}
	order := map[string][]string{}
	placed := map[string]int32{}
	for _, message := range s.receiveAndAck(consumer, 60) {
		order[message.Key()] = append(order[message.Key()], string(message.Payload()))
		placed[message.Key()] = message.ID().PartitionIdx()
	}
	s.see("order within a key", order)
	s.see("where each key went", placed)
	_, err = s.client().CreateProducer(pulsar.ProducerOptions{Topic: topic + "-partition-7"})
	s.seeError("a producer on a partition that is not there", err)
}

func severalTopics(s *stage) {
	topics := []string{s.topic("-0"), s.topic("-1"), s.topic("-2")}
	consumer := s.subscribe(pulsar.ConsumerOptions{Topics: topics})
	for _, topic := range topics {
		s.send(s.plain(topic), numbered(topic+" ", 5)...)
	}
	got := map[string][]string{}
	for _, message := range s.receiveAndAck(consumer, 15) {
		got[message.Topic()] = append(got[message.Topic()], string(message.Payload()))
	}
	s.see("by topic", got)
}

func topicsByPattern(s *stage) {
	for _, name := range []string{"-yes-0", "-yes-1", "-no-0"} {
		s.send(s.plain(s.topic(name)), "to "+name)
	}
	consumer := s.subscribe(pulsar.ConsumerOptions{
		TopicsPattern:               s.topic("-yes-.*"),
		AutoDiscoveryPeriod:         time.Second,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	s.see("first", sorted(texts(s.receiveAndAck(consumer, 2))))
	s.send(s.plain(s.topic("-yes-late")), "late")
	s.send(s.plain(s.topic("-no-late")), "other")
	s.see("later", texts(s.receiveAndAck(consumer, 1)))
	s.see("more", texts(s.untilSilence(consumer, time.Second)))
}

func nonPersistent(s *stage) {
	topic := "non-persistent://" + s.Topic
	producer := s.plain(topic)
	s.send(producer, "nobody is there")
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic})
	shared := s.subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "shared", Type: pulsar.Shared,
	})
	s.untilPermits(topic, 2)
	s.send(producer, numbered("message ", 10)...)
	s.see("exclusive", texts(s.receiveAndAck(consumer, 10)))
	s.see("shared", texts(s.receiveAndAck(shared, 10)))
	consumer.Close()
	s.send(producer, "nobody is there again")
	back := s.subscribe(pulsar.ConsumerOptions{Topic: topic})
	s.see("kept for it", texts(s.untilSilence(back, silence)))
	_, err := s.trySubscribe(pulsar.ConsumerOptions{Topic: topic})
	s.seeError("exclusive beside it", err)
}

// untilPermits waits until that many consumers of the topic have permits. A client answers a
// subscribe before its first permits reach the broker, and a non-persistent topic drops what comes
// earlier.
func (s *stage) untilPermits(topic string, consumers int) {
	path := "/admin/v2/" + strings.Replace(topic, "://", "/", 1) + "/stats"
	deadline := time.Now().Add(permitsMax)
	for s.consumersWithPermits(path) < consumers {
		check(time.Now().Before(deadline), "the consumers got no permits")
		time.Sleep(lookEvery)
	}
}

func (s *stage) consumersWithPermits(statsPath string) int {
	var stats struct {
		Subscriptions map[string]struct {
			Consumers []struct{ AvailablePermits int }
		}
	}
	_, body, _ := strings.Cut(s.http("GET", statsPath, ""), " ")
	must(json.Unmarshal([]byte(body), &stats))
	count := 0
	for _, subscription := range stats.Subscriptions {
		for _, consumer := range subscription.Consumers {
			if consumer.AvailablePermits > 0 {
				count++
			}
		}
	}
	return count
}
