package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsaradmin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/admin"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/rest"
	"github.com/apache/pulsar-client-go/pulsaradmin/pkg/utils"
)

const (
	inForceMax = 10 * time.Second
	lookEvery  = 50 * time.Millisecond
)

// place is a namespace of the scenario's own with a topic, and the administrator's client.
type place struct {
	*stage
	admin     pulsaradmin.Client
	policies  admin.TopicPolicies
	namespace string
	topic     string
	// paths of the administrator's requests that the client has no call for
	ofNamespace, ofTopic string
}

func newPlace(s *stage) *place {
	client, err := pulsaradmin.NewClient(&pulsaradmin.Config{WebServiceURL: s.WebURL})
	must(err)
	policies, err := pulsaradmin.TopicPoliciesOf(client, false)
	must(err)
	p := &place{stage: s, admin: client, policies: policies, namespace: "public/" + s.name()}
	p.topic = "persistent://" + p.namespace + "/t"
	p.ofNamespace = "/admin/v2/namespaces/" + p.namespace
	p.ofTopic = "/admin/v2/persistent/" + p.namespace + "/t"
	must(client.Namespaces().CreateNamespace(p.namespace))
	must(client.Topics().Create(p.topicName("t"), 0))
	return p
}

// name is the last part of the topic's name, which no other scenario has.
func (s *stage) name() string { return s.Topic[strings.LastIndex(s.Topic, "/")+1:] }

func (p *place) topicName(name string) utils.TopicName {
	full, err := utils.GetTopicName("persistent://" + p.namespace + "/" + name)
	must(err)
	return *full
}

func (p *place) namespaceName() utils.NameSpaceName {
	name, err := utils.GetNamespaceName(p.namespace)
	must(err)
	return *name
}

// until looks until it is what is wanted, as real Pulsar has a policy of a topic in force a little
// after its answer. It adds to the trace what was seen at last.
func (p *place) until(what string, wanted any, look func() any) {
	deadline := time.Now().Add(inForceMax)
	seen := look()
	for told(seen) != told(wanted) && time.Now().Before(deadline) {
		time.Sleep(lookEvery)
		seen = look()
	}
	p.see(what, seen)
}

func told(value any) string {
	text, err := json.Marshal(value)
	must(err)
	return string(text)
}

// answer is a value of the administrator's client, or the status of its error.
func answer[T any](value T, err error) any {
	if err != nil {
		return status(err)
	}
	return value
}

// status of an error of the administrator's client; nil if there is none.
func status(err error) any {
	var refused rest.Error
	if errors.As(err, &refused) {
		return refused.Code
	}
	if err != nil {
		return fmt.Sprintf("%T", err)
	}
	return nil
}

// held tells that an action took long, but not too long, because of a rate, at the first or a later
// attempt: real Pulsar has a rate in force a little after its answer.
func (s *stage) held(what string, action func() any) {
	const shortest, longest = 500 * time.Millisecond, 20 * time.Second
	var took time.Duration
	for i := 0; i < 10 && took < shortest; i++ {
		start := time.Now()
		action()
		took = time.Since(start)
	}
	check(took < longest, fmt.Sprintf("%s took %s", what, took))
	s.see(what, took >= shortest)
}

// quick tells that it did not.
func (s *stage) quick(what string, action func() any) {
	start := time.Now()
	s.see(what, action())
	s.see("not held", time.Since(start).Seconds() < 2)
}
