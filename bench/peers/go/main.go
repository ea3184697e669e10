// Load for NATS: publishes to JetStream, or reads a subject with very many subscriptions.
//
//	publish URL SUBJECT BYTES RATE WINDOW_SECONDS
//	fanout URL SUBJECT core|jetstream SUBSCRIPTIONS CONNECTIONS MESSAGES BYTES
//
// Prints one JSON object a line. `publish` goes on until its input ends; a rate of 0 is full speed,
// and any other rate begins after a window of warming up. `fanout` publishes when it has read a
// line. It is the twin of the Java program beside.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	stream           = "bench"
	outstandingMax   = 4000 // the default of the client
	warmUpMessages   = 5
	messageInterval  = time.Second
	stallMax         = 60 * time.Second
	deliverySeconds  = 30 * time.Second
	subscribeSeconds = 120 * time.Second
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func tell(figures map[string]float64) {
	line, err := json.Marshal(figures)
	check(err)
	fmt.Println(string(line))
}

func connect(url string) *nats.Conn {
	connection, err := nats.Connect(url, nats.ErrorHandler(
		func(_ *nats.Conn, _ *nats.Subscription, err error) { check(err) }))
	check(err)
	return connection
}

// makeStream allows so many consumers; the default of the server is 1,000.
func makeStream(js nats.JetStreamContext, subject string, consumersMax int) {
	_, err := js.AddStream(&nats.StreamConfig{
		Name: stream, Subjects: []string{subject}, Storage: nats.FileStorage,
		MaxConsumers: consumersMax,
	})
	check(err)
}

// samples are latencies in milliseconds.
type samples struct {
	lock sync.Mutex
	all  []float64
}

func (s *samples) add(latency time.Duration) {
	s.lock.Lock()
	s.all = append(s.all, float64(latency)/1e6)
	s.lock.Unlock()
}

// take gives p50, p99 and the largest, and forgets them; of nothing it gives zeros.
func (s *samples) take() (p50, p99, most float64) {
	s.lock.Lock()
	all := s.all
	s.all = nil
	s.lock.Unlock()
	if len(all) == 0 {
		return
	}
	sort.Float64s(all)
	at := func(share float64) float64 { return all[int(share*float64(len(all)-1))] }
	return at(0.5), at(0.99), all[len(all)-1]
}

func publish(url, subject string, size, rate int, window time.Duration) {
	js, err := connect(url).JetStream(nats.PublishAsyncMaxPending(outstandingMax))
	check(err)
	makeStream(js, subject, 1)
	var done atomic.Int64
	latencies := &samples{}
	begun := time.Now()
	ended := make(chan bool)
	var sending sync.WaitGroup
	sending.Go(func() {
		if rate > 0 {
			warmUp(js, subject, make([]byte, size), begun.Add(window), &done)
		}
		send(js, subject, make([]byte, size), rate, &done, latencies, ended)
	})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	ticks := time.NewTicker(window)
	for {
		select {
		case <-ended:
			sending.Wait()
			check(js.DeleteStream(stream))
			return
		case <-ticks.C:
			figures := map[string]float64{
				"messages": float64(done.Load()), "seconds": time.Since(begun).Seconds(),
			}
			if rate > 0 {
				figures["p50 ms"], figures["p99 ms"], _ = latencies.take()
			}
			tell(figures)
		}
	}
}

// warmUp sends one message after the other, as fast as their receipts come: no queue is left.
func warmUp(
	js nats.JetStreamContext, subject string, payload []byte, end time.Time, done *atomic.Int64,
) {
	for time.Now().Before(end) {
		_, err := js.Publish(subject, payload)
		check(err)
		done.Add(1)
	}
}

type sent struct {
	future nats.PubAckFuture
	at     time.Time
}

// send publishes until `ended` is closed, and waits for its receipts. A message that could not be
// sent when it was due is late from then on.
func send(
	js nats.JetStreamContext, subject string, payload []byte, rate int,
	done *atomic.Int64, latencies *samples, ended <-chan bool,
) {
	waiting := make(chan sent, outstandingMax) // receipts come in order
	var receiving sync.WaitGroup
	defer receiving.Wait()
	defer close(waiting)
	receiving.Go(func() {
		for each := range waiting {
			select {
			case <-each.future.Ok():
				done.Add(1)
				if rate > 0 {
					latencies.add(time.Since(each.at))
				}
			case err := <-each.future.Err():
				check(err)
			}
		}
	})
	begun := time.Now()
	for index := 0; ; index++ {
		select {
		case <-ended:
			return
		default:
		}
		at := time.Now()
		if rate > 0 {
			due := begun.Add(time.Duration(index) * time.Second / time.Duration(rate))
			if at.After(due) {
				at = due
			} else {
				time.Sleep(time.Until(due))
				at = time.Now()
			}
		}
		future, err := js.PublishAsync(subject, payload, nats.StallWait(stallMax))
		check(err)
		waiting <- sent{future, at}
	}
}

func fanout(url, subject, kind string, subscriptions, connections, messages, size int) {
	publisher := connect(url)
	js, err := publisher.JetStream()
	check(err)
	if kind == "jetstream" {
		makeStream(js, subject, subscriptions)
		defer func() { check(js.DeleteStream(stream)) }()
	}
	var delivered atomic.Int64
	latencies := &samples{}
	begun := time.Now()
	var all sync.WaitGroup
	for index := range connections {
		count := subscriptions/connections + btoi(index < subscriptions%connections)
		all.Go(func() { subscribe(url, subject, kind, count, &delivered, latencies) })
	}
	all.Wait()
	tell(map[string]float64{"subscribed s": time.Since(begun).Seconds()})

	input := bufio.NewReader(os.Stdin)
	for _, count := range []int{warmUpMessages, messages} {
		_, err = input.ReadString('\n')
		check(err)
		delivered.Store(0)
		latencies.take()
		for range count {
			payload := make([]byte, size)
			binary.LittleEndian.PutUint64(payload, uint64(time.Now().UnixNano()))
			if kind == "jetstream" {
				_, err = js.Publish(subject, payload)
			} else {
				err = publisher.Publish(subject, payload)
			}
			check(err)
			check(publisher.Flush())
			time.Sleep(messageInterval)
		}
		expected := int64(count * subscriptions)
		for end := time.Now().Add(deliverySeconds); delivered.Load() < expected && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		p50, p99, most := latencies.take()
		tell(map[string]float64{
			"messages": float64(count), "lost": float64(expected - delivered.Load()),
			"p50 s": p50 / 1000, "p99 s": p99 / 1000, "max s": most / 1000,
		})
	}
}

func btoi(is bool) int {
	if is {
		return 1
	}
	return 0
}

// subscribe makes these subscriptions on one connection, and reads them for ever.
func subscribe(
	url, subject, kind string, count int, delivered *atomic.Int64, latencies *samples,
) {
	connection := connect(url)
	js, err := connection.JetStream(nats.MaxWait(subscribeSeconds))
	check(err)
	messages := make(chan *nats.Msg, 16*count)
	for range count {
		if kind == "jetstream" {
			_, err = js.ChanSubscribe(subject, messages, nats.BindStream(stream), nats.DeliverNew(),
				nats.AckExplicit(), nats.ConsumerMemoryStorage())
		} else {
			_, err = connection.ChanSubscribe(subject, messages)
		}
		check(err)
	}
	check(connection.Flush())
	go func() {
		for message := range messages {
			at := time.Unix(0, int64(binary.LittleEndian.Uint64(message.Data)))
			latencies.add(time.Since(at))
			delivered.Add(1)
			if kind == "jetstream" {
				check(message.Ack())
			}
		}
	}()
}

func main() {
	given := os.Args[1:]
	if len(given) == 6 && given[0] == "publish" {
		window, err := strconv.ParseFloat(given[5], 64)
		check(err)
		publish(given[1], given[2], number(given[3]), number(given[4]),
			time.Duration(window*float64(time.Second)))
		return
	}
	if len(given) == 8 && given[0] == "fanout" {
		fanout(given[1], given[2], given[3],
			number(given[4]), number(given[5]), number(given[6]), number(given[7]))
		return
	}
	check(fmt.Errorf("see the comment at the top of main.go"))
}
