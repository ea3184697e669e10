package main

import (
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Vela's own: every consumer of one subscription gets everything. The driver publishes "0", "1", ...
// once all consumers of all programs are connected.
const (
	broadcastConsumers = 100
	broadcastMessages  = 40
	broadcastPatience  = 100 * time.Second
)

func init() {
	register("broadcast-exclusive", func(s *stage) { broadcast(s, pulsar.Exclusive) })
	register("broadcast-shared", func(s *stage) { broadcast(s, pulsar.Shared) })
}

func broadcast(s *stage, kind pulsar.SubscriptionType) {
	var consumers []pulsar.Consumer
	for i := range broadcastConsumers {
		consumers = append(consumers, s.subscribe(pulsar.ConsumerOptions{
			Topic:            s.topic(""),
			SubscriptionName: "everybody",
			Type:             kind,
			Name:             fmt.Sprintf("go-%d", i),
			Properties:       map[string]string{"vela.broadcast": "true"},
		}))
	}
	inOrder := 0
	for _, consumer := range consumers {
		for i := range broadcastMessages {
			message := tryReceive(consumer, broadcastPatience)
			check(message != nil, fmt.Sprintf("%s got only %d messages", consumer.Name(), i))
			got := string(message.Payload())
			check(got == fmt.Sprint(i), fmt.Sprintf("%s got %s, not %d", consumer.Name(), got, i))
			if kind == pulsar.Shared {
				must(consumer.Ack(message))
			} else if i%10 == 9 {
				must(consumer.AckCumulative(message))
			}
		}
		inOrder++
	}
	for _, consumer := range consumers {
		message := tryReceive(consumer, time.Millisecond)
		check(message == nil, consumer.Name()+" got more than there was")
	}
	s.see("consumers that got everything in order", inOrder)
}
