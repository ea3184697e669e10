package main

import (
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
)

func init() {
	register("limits-of-counts", limitsOfCounts)
}

// limitsOfCounts is in a namespace whose limits were set before its topics were there.
func limitsOfCounts(s *stage) {
	namespace := "public/" + s.topic("")[strings.LastIndex(s.topic(""), "/")+1:]
	path := "/admin/v2/namespaces/" + namespace
	s.set("PUT", path, "")
	s.set("POST", path+"/maxProducersPerTopic", "1")
	s.set("POST", path+"/maxConsumersPerSubscription", "1")
	s.set("POST", path+"/maxSubscriptionsPerTopic", "2")
	s.set("POST", path+"/subscriptionTypesEnabled", `["Shared"]`)
	for _, domain := range []string{"persistent", "non-persistent"} {
		topic := domain + "://" + namespace + "/t"
		first := s.plain(topic)
		_, err := s.client().CreateProducer(pulsar.ProducerOptions{Topic: topic})
		s.seeError("a second producer", err)
		first.Close()
		_, err = s.client().CreateProducer(pulsar.ProducerOptions{Topic: topic})
		s.seeError("after the first has closed", err)
		for _, name := range []string{"one", "one", "two", "three"} {
			_, err = s.client().Subscribe(pulsar.ConsumerOptions{
				Topic: topic, SubscriptionName: name, Type: pulsar.Shared,
			})
			s.seeError("consumer of "+name, err)
		}
		_, err = s.client().CreateReader(pulsar.ReaderOptions{
			Topic: topic, StartMessageID: pulsar.LatestMessageID(),
		})
		s.seeError("a reader", err)
		_, err = s.client().Subscribe(pulsar.ConsumerOptions{
			Topic: topic, SubscriptionName: "two", Type: pulsar.Failover,
		})
		s.seeError("another type", err)
	}
}

func (s *stage) set(method string, path string, body string) {
	answer := s.http(method, path, body)
	check(strings.HasPrefix(answer, "204"), path+" answered "+answer)
}
