package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Longer than either server waits before it writes a cursor after the acks.
const cursorFlush = 2 * time.Second

// A client that has waited for its server tries again after at most a minute.
const reconnectMax = 90 * time.Second

// Longer than a stop, a start and a reconnection take together on a busy machine.
const sendTimeout = 8 * time.Minute

func init() {
	for name, end := range map[string]string{"restart": "stop", "kill-9": "kill"} {
		register(name+"-between-publish-and-consume", func(s *stage) { between(s, end) })
		register(name+"-under-waiting-clients", func(s *stage) { waiting(s, end) })
	}
}

func between(s *stage, end string) {
	kinds := []bool{false, true}
	options := func(batched bool) pulsar.ConsumerOptions {
		return pulsar.ConsumerOptions{
			Topic: s.topic(fmt.Sprint("-", batched)), Type: pulsar.Shared,
		}
	}
	for _, batched := range kinds {
		consumer := s.subscribe(options(batched))
		s.send(s.batches(options(batched).Topic, batched), numbered("message ", 100)...)
		for _, message := range s.receive(consumer, 20) {
			if !batched && string(message.Payload()) != "message 3" {
				must(consumer.Ack(message))
			}
		}
	}
	time.Sleep(cursorFlush)
	s.closeClients()
	s.ask(end)
	s.ask("start")
	for _, batched := range kinds {
		reader := s.reader(options(batched).Topic, pulsar.EarliestMessageID(), false)
		kept := []string{}
		for range 100 {
			kept = append(kept, string(next(reader).Payload()))
		}
		s.see("kept", kept)
		s.see("more", reader.HasNext())
		consumer := s.subscribe(options(batched))
		unacked := append(numbered("message ", 100)[20:], "message 3")
		rest := texts(s.allOf(consumer, unacked, reconnectMax, 2*time.Second))
		for _, text := range unacked {
			check(slices.Contains(rest, text), "an unacked message was lost: "+text)
		}
		if end == "stop" {
			s.see("of the subscription", sorted(rest))
		}
		s.send(s.plain(options(batched).Topic), "new")
		s.see("new", texts(s.allOf(consumer, []string{"new"}, receiveTimeout, time.Second)))
	}
}

func waiting(s *stage, end string) {
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic("")})
	producer := s.produce(pulsar.ProducerOptions{
		Topic: s.topic(""), SendTimeout: sendTimeout, DisableBatching: true,
	})
	s.send(producer, numbered("before ", 10)...)
	s.see("before", texts(s.receiveAndAck(consumer, 10)))
	time.Sleep(cursorFlush)
	s.ask(end)
	results := make(chan error, 10)
	for i := range 10 {
		producer.SendAsync(context.Background(),
			&pulsar.ProducerMessage{Payload: fmt.Append(nil, "meanwhile ", i)},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { results <- err })
	}
	s.ask("start")
	for range 10 {
		must(<-results)
	}
	s.send(producer, numbered("after ", 10)...)
	var seen []string
	sent := append(numbered("meanwhile ", 10), numbered("after ", 10)...)
	for _, text := range texts(s.allOf(consumer, sent, reconnectMax, time.Second)) {
		if !strings.HasPrefix(text, "before") && !slices.Contains(seen, text) {
			seen = append(seen, text)
		}
	}
	s.see("after", seen)
}
