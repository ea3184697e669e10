package main

import (
	"context"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

const expiryMax = 240 * time.Second

func init() {
	register("expiry", expiry)
}

// expiry is for servers that look each minute, and at topics each second: messages, a subscription that
// is not used, and topics that nobody uses any more.
func expiry(s *stage) {
	p := newPlace(s)
	ctx, topic := context.Background(), p.topicName("t")
	must(p.admin.Namespaces().SetNamespaceMessageTTL(p.namespace, 3_600))
	must(p.admin.Namespaces().SetSubscriptionExpirationTime(p.namespaceName(), 1))
	used := s.subscribe(pulsar.ConsumerOptions{
		Topic: p.topic, SubscriptionName: "used", ReceiverQueueSize: 1,
	})
	must(p.admin.Subscriptions().Create(topic, "unused", utils.Earliest))
	producer := s.plain(p.topic)
	s.send(producer, numbered("old ", 10)...)
	must(p.policies.SetMessageTTL(ctx, topic, 5))
	p.leaveTopics()
	p.until("without the inactive", []string{"backlog", "kept", "t"}, p.topics)
	waitFor("nothing expires", func() bool {
		used := p.subscriptions()["used"]
		return used.MsgBacklog == 0 && used.LastExpireTimestamp > 0 // counted afterwards
	})
	stats := p.subscriptions()["used"]
	s.see("expired", []any{stats.MsgBacklog, stats.LastExpireTimestamp > 0})
	waitFor("no subscription expires", func() bool {
		_, there := p.subscriptions()["unused"]
		return !there
	})
	s.send(producer, "new")
	message := s.receive(used, 1)[0]
	if string(message.Payload()) != "new" { // It was with the client when it expired.
		message = s.receive(used, 1)[0]
	}
	s.seeMessage("received", message)
	// That with the backlog goes when its subscription expires, now or with the next look.
	s.see("topics", slices.DeleteFunc(
		p.topics().([]string), func(name string) bool { return name == "backlog" }))
}

// leaveTopics leaves some with policies by which they stay.
func (p *place) leaveTopics() {
	for _, name := range []string{"unsubscribed", "caught-up", "backlog", "kept"} {
		full := "persistent://" + p.namespace + "/" + name
		producer := p.plain(full)
		mode := utils.DeleteWhenNoSubscriptions
		if name != "unsubscribed" {
			mode = utils.DeleteWhenSubscriptionsCaughtUp
			p.subscribe(pulsar.ConsumerOptions{Topic: full}).Close()
		}
		if name == "backlog" {
			p.send(producer, "x")
		}
		must(p.policies.SetInactiveTopicPolicies(context.Background(), p.topicName(name),
			utils.NewInactiveTopicPolicies(&mode, 1, name != "kept")))
		producer.Close()
	}
}

func (p *place) topics() any {
	_, there, err := p.admin.Topics().List(p.namespaceName())
	must(err)
	names := []string{}
	for _, topic := range there {
		name := topic[strings.LastIndex(topic, "/")+1:]
		if !strings.HasPrefix(name, "__") {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

func (p *place) subscriptions() map[string]utils.SubscriptionStats {
	stats, err := p.admin.Topics().GetStats(p.topicName("t"))
	must(err)
	return stats.Subscriptions
}

func waitFor(otherwise string, holds func() bool) {
	deadline := time.Now().Add(expiryMax)
	for !holds() {
		check(time.Now().Before(deadline), otherwise)
		time.Sleep(500 * time.Millisecond)
	}
}
