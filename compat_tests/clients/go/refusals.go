package main

import (
	"sort"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
)

func init() {
	register("refused-consumers", refusedConsumers)
	register("topics-of-a-namespace", topicsOfANamespace)
}

// refusedConsumers: types that are not enabled, and subscriptions that do not come by themselves.
func refusedConsumers(s *stage) {
	namespace := s.namespace(`"subscription_types_enabled": ["Exclusive"], ` +
		`"autoSubscriptionCreationOverride": {"allowAutoSubscriptionCreation": false}`)
	for _, domain := range []string{"persistent", "non-persistent"} {
		topic := domain + "://" + namespace + "/t"
		path := "/admin/v2/" + domain + "/" + namespace + "/t"
		s.set("PUT", path, "")
		if domain == "persistent" {
			s.set("PUT", path+"/subscription/there", "")
		}
		holder := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "there"}
		s.subscribe(holder)
		for _, name := range []string{"there", "new"} {
			for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Shared} {
				s.seeAttempt(pulsar.ConsumerOptions{
					Topic: topic, SubscriptionName: name, Type: kind,
				})
			}
			for _, kind := range []pulsar.SubscriptionType{pulsar.Exclusive, pulsar.Shared} {
				s.seeAttempt(pulsar.ConsumerOptions{
					Topic: topic, SubscriptionName: name, Type: kind, ReadCompacted: true,
				})
			}
		}
		if domain == "persistent" {
			s.see("left", s.http("GET", path+"/subscriptions", ""))
		}
	}
}

func (s *stage) seeAttempt(options pulsar.ConsumerOptions) {
	consumer, err := s.client().Subscribe(options)
	s.seeError("consumer", err)
	if err == nil {
		consumer.Close()
	}
}

// topicsOfANamespace are made in every way that there is, until there is one too many.
func topicsOfANamespace(s *stage) {
	namespace := s.namespace(`"max_topics_per_namespace": 2`)
	base, path := "persistent://"+namespace+"/", "/admin/v2/persistent/"+namespace
	produce := func(topic string) error {
		_, err := s.client().CreateProducer(pulsar.ProducerOptions{Topic: topic})
		return err
	}
	consume := func(topic string) error {
		_, err := s.client().Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
		return err
	}
	s.seeError("producer", produce(base+"a"))
	s.see("too many partitions", s.http("PUT", path+"/p/partitions", "2"))
	s.seeError("consumer", consume(base+"b"))
	s.seeError("one more producer", produce(base+"c"))
	s.seeError("one more consumer", consume(base+"c"))
	_, err := s.client().CreateReader(pulsar.ReaderOptions{
		Topic: base + "c", StartMessageID: pulsar.LatestMessageID(),
	})
	s.seeError("one more reader", err)
	s.see("one more of an administrator", s.http("PUT", path+"/c", ""))
	s.seeError("that is there", produce(base+"b"))
	s.seeError("that stores nothing", produce("non-"+base+"c"))
	s.see("topics", s.names(path, namespace))
}

func (s *stage) names(path string, namespace string) []string {
	answer := strings.TrimPrefix(s.http("GET", path, ""), "200 ")
	names := strings.Split(strings.ReplaceAll(answer, namespace, ""), ",")
	for i, name := range names {
		names[i] = strings.Trim(name, `[]"`)
	}
	sort.Strings(names)
	return names
}

// namespace has these policies from its beginning.
func (s *stage) namespace(policies string) string {
	name := "public/" + s.name() + "-given"
	s.set("PUT", "/admin/v2/namespaces/"+name, "{"+policies+"}")
	return name
}
