// The Go side of the compatibility comparison: one small program on the stock Go client.
// It reads one request per line and runs the scenario it names; see driver.py for the dialogue.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"runtime/debug"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const (
	receiveTimeout = 10 * time.Second
	silence        = 700 * time.Millisecond
	ackGrouping    = 400 * time.Millisecond
	turn           = 20 * time.Millisecond
	togetherMax    = 30 * time.Second
)

var scenarios = map[string]func(*stage){}

func register(name string, play func(*stage)) {
	if _, there := scenarios[name]; there {
		panic("two scenarios are called " + name)
	}
	scenarios[name] = play
}

type request struct {
	Scenario   string `json:"scenario"`
	ServiceURL string `json:"service_url"`
	WebURL     string `json:"web_url"`
	Topic      string `json:"topic"`
	Keys       string `json:"keys"`
}

// stage is a scenario's client, topic names and trace. The trace has no ids, times, addresses.
type stage struct {
	request
	answers *bufio.Reader
	writing sync.Mutex
	clients []pulsar.Client
}

func main() {
	if len(os.Args) == 2 && os.Args[1] == "list" {
		var names []string
		for name := range scenarios {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Println(strings.Join(names, "\n"))
		return
	}
	requests := bufio.NewReader(os.Stdin)
	for {
		line, err := requests.ReadString('\n')
		if err != nil {
			return
		}
		s := &stage{answers: requests}
		must(json.Unmarshal([]byte(line), &s.request))
		s.write(s.play())
	}
}

func (s *stage) play() (end map[string]string) {
	defer s.closeClients()
	defer func() {
		if failure := recover(); failure != nil {
			why := fmt.Sprintf("%v\n%s", failure, debug.Stack())
			end = map[string]string{"end": "failed", "why": why[:min(len(why), 3000)]}
		}
	}()
	scenario, there := scenarios[s.Scenario]
	check(there, "no scenario is called "+s.Scenario)
	scenario(s)
	return map[string]string{"end": "ok"}
}

func (s *stage) write(value any) {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	must(encoder.Encode(value))
	s.writing.Lock()
	defer s.writing.Unlock()
	fmt.Print(text.String())
}

func (s *stage) see(what string, value any) { s.write([]any{what, value}) }

func (s *stage) ask(whatOfServer string) {
	s.write(map[string]string{"ask": whatOfServer})
	answer, err := s.answers.ReadString('\n')
	must(err)
	check(answer == "done\n", "the driver answered "+answer)
}

func (s *stage) newClient() pulsar.Client {
	logger := logrus.New()
	logger.SetOutput(os.Stderr)
	logger.SetLevel(logrus.WarnLevel)
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:              s.ServiceURL,
		OperationTimeout: 20 * time.Second,
		Logger:           log.NewLoggerWithLogrus(logger),
	})
	must(err)
	s.clients = append(s.clients, client)
	return client
}

func (s *stage) client() pulsar.Client {
	if len(s.clients) == 0 {
		return s.newClient()
	}
	return s.clients[0]
}

func (s *stage) closeClients() {
	for _, client := range s.clients {
		client.Close()
	}
	s.clients = nil
}

func (s *stage) topic(suffix string) string { return "persistent://" + s.Topic + suffix }

func (s *stage) trySubscribe(options pulsar.ConsumerOptions) (pulsar.Consumer, error) {
	if options.SubscriptionName == "" {
		options.SubscriptionName = "s"
	}
	return s.client().Subscribe(options)
}

func (s *stage) subscribe(options pulsar.ConsumerOptions) pulsar.Consumer {
	consumer, err := s.trySubscribe(options)
	must(err)
	return consumer
}

func (s *stage) produce(options pulsar.ProducerOptions) pulsar.Producer {
	producer, err := s.client().CreateProducer(options)
	must(err)
	return producer
}

func (s *stage) plain(topic string) pulsar.Producer {
	return s.produce(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
}

func (s *stage) send(producer pulsar.Producer, payloads ...string) {
	results := make(chan error, len(payloads))
	for _, payload := range payloads {
		producer.SendAsync(context.Background(), &pulsar.ProducerMessage{Payload: []byte(payload)},
			func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { results <- err })
	}
	must(producer.Flush())
	for range payloads {
		select {
		case err := <-results:
			must(err)
		case <-time.After(100 * time.Second):
			panic("a message was never acknowledged by the server")
		}
	}
}

func numbered(prefix string, count int) []string {
	var payloads []string
	for i := range count {
		payloads = append(payloads, fmt.Sprintf("%s%d", prefix, i))
	}
	return payloads
}

func tryReceive(consumer pulsar.Consumer, within time.Duration) pulsar.Message {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	message, err := consumer.Receive(ctx)
	if err != nil {
		return nil
	}
	return message
}

func (s *stage) receive(consumer pulsar.Consumer, count int) []pulsar.Message {
	received := []pulsar.Message{}
	for range count {
		message := tryReceive(consumer, receiveTimeout)
		check(message != nil, fmt.Sprintf("only %d of %d messages came", len(received), count))
		received = append(received, message)
	}
	return received
}

func (s *stage) receiveAndAck(consumer pulsar.Consumer, count int) []pulsar.Message {
	received := s.receive(consumer, count)
	for _, message := range received {
		must(consumer.Ack(message))
	}
	return received
}

func (s *stage) untilSilence(consumer pulsar.Consumer, within time.Duration) []pulsar.Message {
	received := []pulsar.Message{}
	for {
		message := tryReceive(consumer, within)
		if message == nil {
			return received
		}
		must(consumer.Ack(message))
		received = append(received, message)
	}
}

// together is what each of them gets, acknowledged: until all have so many together, then to a silence.
func (s *stage) together(consumers []pulsar.Consumer, count int) [][]pulsar.Message {
	parts := make([][]pulsar.Message, len(consumers))
	deadline := time.Now().Add(togetherMax)
	got := 0
	for got < count {
		check(time.Now().Before(deadline), fmt.Sprintf("only %d of %d messages came", got, count))
		for i, consumer := range consumers {
			came := s.untilSilence(consumer, turn)
			parts[i] = append(parts[i], came...)
			got += len(came)
		}
	}
	for i, consumer := range consumers {
		parts[i] = append(parts[i], s.untilSilence(consumer, silence)...)
	}
	return parts
}

// gets is together for one consumer.
func (s *stage) gets(consumer pulsar.Consumer, count int) []string {
	return texts(s.together([]pulsar.Consumer{consumer}, count)[0])
}

// allOf receives and acknowledges until all expected texts were seen and then a silence came; a text
// that does not come in time is left to the caller to miss.
func (s *stage) allOf(
	consumer pulsar.Consumer, expected []string, within time.Duration, silence time.Duration,
) []pulsar.Message {
	missing := map[string]bool{}
	for _, text := range expected {
		missing[text] = true
	}
	received := []pulsar.Message{}
	deadline := time.Now().Add(within)
	for len(missing) > 0 {
		message := tryReceive(consumer, time.Until(deadline))
		if message == nil {
			break
		}
		must(consumer.Ack(message))
		received = append(received, message)
		delete(missing, string(message.Payload()))
	}
	return append(received, s.untilSilence(consumer, silence)...)
}

func (s *stage) seeMessage(what string, message pulsar.Message) {
	var eventTime int64
	if !message.EventTime().IsZero() && message.EventTime().UnixMilli() > 0 {
		eventTime = message.EventTime().UnixMilli()
	}
	s.see(what, map[string]any{
		"data":             textOf(message.Payload()),
		"key":              message.Key(),
		"ordering_key":     message.OrderingKey(),
		"properties":       message.Properties(),
		"redelivery_count": message.RedeliveryCount(),
		"event_time":       eventTime,
		"batch_index":      message.ID().BatchIdx(),
		"batch_size":       message.ID().BatchSize(),
		"partition":        message.ID().PartitionIdx(),
	})
}

var serverError = regexp.MustCompile(`server error: (\w+)`)
var resultName = regexp.MustCompile(`(\w+)$`)

// seeError tells the name of the error alone: its text has addresses in it.
func (s *stage) seeError(what string, err error) { s.see(what, errorName(err)) }

func errorName(err error) any {
	if err == nil {
		return nil
	}
	if found := serverError.FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	return resultName.FindString(err.Error())
}

func (s *stage) http(method string, path string, body string) string {
	asked, err := http.NewRequest(method, s.WebURL+path, strings.NewReader(body))
	must(err)
	asked.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(asked)
	must(err)
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	must(err)
	return fmt.Sprintf("%d %s", answer.StatusCode, content)
}

func (s *stage) partition(topic string, count int) {
	path := "/admin/v2/" + strings.Replace(topic, "://", "/", 1) + "/partitions"
	answer := s.http("PUT", path, fmt.Sprint(count))
	check(strings.HasPrefix(answer, "204"), answer)
}

func textOf(data []byte) string {
	if len(data) <= 200 {
		return string(data)
	}
	return fmt.Sprintf("sha256:%x:%d", sha256.Sum256(data), len(data))
}

func texts(messages []pulsar.Message) []string {
	told := []string{}
	for _, message := range messages {
		told = append(told, string(message.Payload()))
	}
	return told
}

func sorted(values []string) []string {
	sort.Strings(values)
	return values
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func check(holds bool, otherwise string) {
	if !holds {
		panic(otherwise)
	}
}
