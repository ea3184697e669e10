package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const (
	renewedFor   = 8 * time.Second
	renewedPause = 20 * time.Millisecond
)

func init() {
	register("credentials-renewed", credentialsRenewed)
	register("attempts", attempts)
	register("expiries", expiries)
}

type attempt struct {
	Label        string `json:"label"`
	Method       string `json:"method"`
	Credential   string `json:"credential"`
	Issuer       string `json:"issuer"`
	URL          string `json:"url"`
	Trusted      string `json:"trusted"`
	Topic        string `json:"topic"`
	Subscription string `json:"subscription"`
	Seconds      int    `json:"seconds"`
}

func (a attempt) authentication() pulsar.Authentication {
	switch a.Method {
	case "token":
		return pulsar.NewAuthenticationToken(a.Credential)
	case "basic":
		user, password, _ := strings.Cut(a.Credential, ":")
		authentication, err := pulsar.NewAuthenticationBasic(user, password)
		must(err)
		return authentication
	case "tls":
		certificate, key, _ := strings.Cut(a.Credential, ",")
		return pulsar.NewAuthenticationTLS(certificate, key)
	case "oauth2":
		return pulsar.NewAuthenticationOAuth2(map[string]string{
			"type":       "client_credentials",
			"issuerUrl":  a.Issuer,
			"audience":   "vela",
			"privateKey": "file://" + a.Credential,
			"clientId":   "alice",
		})
	}
	return nil
}

func quietLogger() log.Logger {
	logger := logrus.New()
	logger.SetOutput(os.Stderr)
	logger.SetLevel(logrus.WarnLevel)
	return log.NewLoggerWithLogrus(logger)
}

// attempts are the lines of a file, all at once: what subscribing says, what publishing says, what is
// received.
func attempts(s *stage) {
	var all []attempt
	for _, line := range strings.Split(strings.TrimSpace(s.contentOf("attempts.txt")), "\n") {
		var one attempt
		must(json.Unmarshal([]byte(line), &one))
		all = append(all, one)
	}
	outcomes := make([][]any, len(all))
	var trying sync.WaitGroup
	for i, one := range all {
		trying.Add(1)
		go func() {
			defer trying.Done()
			outcomes[i] = one.outcome()
		}()
	}
	trying.Wait()
	for i, one := range all {
		s.see(one.Label, outcomes[i])
	}
}

func (a attempt) outcome() []any {
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:                   a.URL,
		Authentication:        a.authentication(),
		OperationTimeout:      time.Duration(a.Seconds) * time.Second,
		TLSTrustCertsFilePath: a.Trusted,
		TLSValidateHostname:   true,
		Logger:                quietLogger(),
	})
	if err != nil {
		return []any{errorName(err), nil, nil}
	}
	defer client.Close()
	consumer, subscribed := client.Subscribe(pulsar.ConsumerOptions{
		Topic: a.Topic, SubscriptionName: a.Subscription,
	})
	producer, published := client.CreateProducer(pulsar.ProducerOptions{Topic: a.Topic})
	if published == nil {
		_, published = producer.Send(
			context.Background(), &pulsar.ProducerMessage{Payload: []byte("hello")})
	}
	var received any
	if subscribed == nil && published == nil {
		if message := tryReceive(consumer, receiveTimeout); message != nil {
			received = string(message.Payload())
		}
	}
	return []any{errorName(subscribed), errorName(published), received}
}

func (s *stage) contentOf(file string) string {
	content, err := os.ReadFile(filepath.Join(s.Keys, file))
	must(err)
	return string(content)
}

// seen of one connection whose tokens expired while it published and received.
type seen struct {
	sent, inOrder, more int
	renewals            int32
}

func (s *stage) overExpiries(topic string, seconds time.Duration, pause time.Duration) seen {
	var shown atomic.Int32
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL: s.ServiceURL,
		Authentication: pulsar.NewAuthenticationTokenFromSupplier(func() (string, error) {
			shown.Add(1)
			return s.contentOf("short"), nil
		}),
		OperationTimeout: 20 * time.Second,
		Logger:           quietLogger(),
	})
	must(err)
	defer client.Close()
	consumer, err := client.Subscribe(
		pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
	must(err)
	producer, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	must(err)
	told := seen{}
	before := shown.Load()
	for end := time.Now().Add(seconds); time.Now().Before(end); time.Sleep(pause) {
		text := []byte(time.Now().String())
		_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: text})
		must(err)
		told.sent++
		if message := tryReceive(consumer, receiveTimeout); message != nil {
			if string(message.Payload()) == string(text) {
				told.inOrder++
			}
			must(consumer.Ack(message))
		}
	}
	for tryReceive(consumer, silence) != nil {
		told.more++
	}
	told.renewals = shown.Load() - before
	return told
}

// credentialsRenewed: a token of three seconds, over two of its ends. Nothing is lost or doubled.
func credentialsRenewed(s *stage) {
	told := s.overExpiries(s.topic(""), renewedFor, renewedPause)
	s.see("all in order", told.inOrder == told.sent)
	s.see("more", told.more)
}

// expiries of many connections at once.
func expiries(s *stage) {
	var run struct {
		Connections int `json:"connections"`
		Seconds     int `json:"seconds"`
		PauseMillis int `json:"pause_millis"`
	}
	must(json.Unmarshal([]byte(s.contentOf("expiries.json")), &run))
	all := make([]seen, run.Connections)
	var playing sync.WaitGroup
	for i := range all {
		playing.Add(1)
		go func() {
			defer playing.Done()
			topic := s.topic("-" + string(rune('a'+i/26)) + string(rune('a'+i%26)))
			all[i] = s.overExpiries(topic, time.Duration(run.Seconds)*time.Second,
				time.Duration(run.PauseMillis)*time.Millisecond)
		}()
	}
	playing.Wait()
	for _, one := range all {
		s.see("connection", []any{one.sent, one.inOrder, one.more, 0, one.renewals})
	}
}
