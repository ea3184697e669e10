package main

import (
	"fmt"
	"sort"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func init() {
	register("individual-ack", individualAck)
	register("cumulative-ack", cumulativeAck)
	register("batch-index-ack", batchIndexAck)
	register("ack-with-receipt", ackWithReceipt)
	register("negative-ack", negativeAck)
	register("dead-letter-topic", deadLetter)
}

func (s *stage) batches(topic string, batched bool) pulsar.Producer {
	return s.produce(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: !batched, BatchingMaxMessages: 10,
		BatchingMaxPublishDelay: 5 * time.Second,
	})
}

func individualAck(s *stage) {
	for i, kind := range subscriptionTypes {
		options := pulsar.ConsumerOptions{Topic: s.topic("-" + typeNames[i]), Type: kind}
		consumer := s.subscribe(options)
		s.send(s.plain(options.Topic), numbered("message ", 10)...)
		got := s.receive(consumer, 10)
		for _, index := range []int{0, 1, 4, 7} {
			must(consumer.Ack(got[index]))
		}
		time.Sleep(ackGrouping)
		consumer.Close()
		again := s.subscribe(options)
		for _, message := range s.receiveAndAck(again, 6) {
			s.seeMessage(typeNames[i]+" came again", message)
		}
		s.see("more", texts(s.untilSilence(again, silence)))
	}
}

func cumulativeAck(s *stage) {
	for _, batched := range []bool{false, true} {
		options := pulsar.ConsumerOptions{
			Topic: s.topic(fmt.Sprint("-", batched)), EnableBatchIndexAcknowledgment: true,
		}
		consumer := s.subscribe(options)
		s.send(s.batches(options.Topic, batched), numbered("message ", 10)...)
		got := s.receive(consumer, 10)
		must(consumer.AckCumulative(got[6]))
		must(consumer.AckCumulative(got[3]))
		time.Sleep(ackGrouping)
		consumer.Close()
		s.see("came again", s.gets(s.subscribe(options), 3))
	}
}

func batchIndexAck(s *stage) {
	for i, kind := range subscriptionTypes {
		options := pulsar.ConsumerOptions{
			Topic: s.topic("-" + typeNames[i]), Type: kind, EnableBatchIndexAcknowledgment: true,
		}
		consumer := s.subscribe(options)
		s.send(s.batches(options.Topic, true), numbered("message ", 20)...)
		got := s.receive(consumer, 20)
		for _, index := range []int{0, 2, 3, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19} {
			must(consumer.Ack(got[index]))
		}
		time.Sleep(ackGrouping)
		consumer.Close()
		again := s.subscribe(options)
		for _, message := range s.receiveAndAck(again, 6) {
			s.seeMessage(typeNames[i]+" came again", message)
		}
		s.see("more", texts(s.untilSilence(again, silence)))
	}
}

func ackWithReceipt(s *stage) {
	options := pulsar.ConsumerOptions{
		Topic: s.topic(""), Type: pulsar.Shared, AckWithResponse: true,
	}
	consumer := s.subscribe(options)
	s.send(s.plain(s.topic("")), numbered("message ", 10)...)
	got := s.receive(consumer, 10)
	for i := range 4 {
		s.seeError("ack", consumer.Ack(got[i]))
	}
	s.seeError("ack list", consumer.AckIDList([]pulsar.MessageID{got[5].ID(), got[7].ID()}))
	consumer.Close()
	s.see("came again", s.gets(s.subscribe(options), 4))
}

func negativeAck(s *stage) {
	for i, kind := range subscriptionTypes {
		options := pulsar.ConsumerOptions{
			Topic: s.topic("-" + typeNames[i]), Type: kind,
			NackRedeliveryDelay: 200 * time.Millisecond,
		}
		consumer := s.subscribe(options)
		s.send(s.plain(options.Topic), numbered("message ", 3)...)
		for turn := range 4 {
			got := s.receive(consumer, 3)
			sort.Slice(got, func(a, b int) bool {
				return string(got[a].Payload()) < string(got[b].Payload())
			})
			for _, message := range got {
				s.seeMessage(fmt.Sprintf("%s turn %d", typeNames[i], turn), message)
				if turn < 3 {
					consumer.Nack(message)
				} else {
					must(consumer.Ack(message))
				}
			}
		}
		s.see("more", texts(s.untilSilence(consumer, silence)))
	}
}

func deadLetter(s *stage) {
	dead := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic("-dead")})
	consumer := s.subscribe(pulsar.ConsumerOptions{
		Topic: s.topic(""), Type: pulsar.Shared, NackRedeliveryDelay: 200 * time.Millisecond,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: s.topic("-dead")},
	})
	s.send(s.plain(s.topic("")), "bad")
	for range 3 {
		message := s.receive(consumer, 1)[0]
		s.seeMessage("tried", message)
		consumer.Nack(message)
	}
	s.see("dead letter", texts(s.receiveAndAck(dead, 1)))
	s.see("more", texts(s.untilSilence(consumer, silence)))
}
