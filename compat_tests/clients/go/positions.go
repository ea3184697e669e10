package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func init() {
	register("reader", reader)
	register("reader-seek", readerSeek)
	register("seek-by-id", seekByID)
	register("seek-by-time", seekByTime)
	register("last-message-id", lastMessageID)
}

// Seeks refuse an id without a partition, which the client's own earliest and latest ids are.
var (
	earliest = pulsar.NewMessageID(-1, -1, -1, 0)
	latest   = pulsar.NewMessageID(math.MaxInt64, math.MaxInt64, -1, 0)
)

func (s *stage) reader(topic string, start pulsar.MessageID, inclusive bool) pulsar.Reader {
	made, err := s.client().CreateReader(pulsar.ReaderOptions{
		Topic: topic, StartMessageID: start, StartMessageIDInclusive: inclusive,
	})
	must(err)
	return made
}

func next(reader pulsar.Reader) pulsar.Message {
	ctx, cancel := context.WithTimeout(context.Background(), receiveTimeout)
	defer cancel()
	message, err := reader.Next(ctx)
	must(err)
	return message
}

func readAll(reader pulsar.Reader) []string {
	read := []string{}
	for reader.HasNext() {
		read = append(read, string(next(reader).Payload()))
	}
	return read
}

func (s *stage) fours(topic string, batched bool) pulsar.Producer {
	return s.produce(pulsar.ProducerOptions{
		Topic: topic, DisableBatching: !batched, BatchingMaxMessages: 4,
		BatchingMaxPublishDelay: 5 * time.Second,
	})
}

func reader(s *stage) {
	for _, batched := range []bool{false, true} {
		topic := s.topic(fmt.Sprint("-", batched))
		producer := s.fours(topic, batched)
		s.send(producer, numbered("", 10)...)
		first := s.reader(topic, pulsar.EarliestMessageID(), false)
		var ids []pulsar.MessageID
		for range 10 {
			message := next(first)
			s.seeMessage("earliest", message)
			ids = append(ids, message.ID())
		}
		s.see("more", first.HasNext())
		for _, index := range []int{0, 3, 5, 9} {
			for _, inclusive := range []bool{false, true} {
				from := s.reader(topic, ids[index], inclusive)
				s.see(fmt.Sprintf("from %d, inclusive %v", index, inclusive), readAll(from))
				from.Close()
			}
		}
		latest := s.reader(topic, pulsar.LatestMessageID(), false)
		s.see("latest", readAll(latest))
		last := s.reader(topic, pulsar.LatestMessageID(), true)
		s.see("latest inclusive", readAll(last))
		s.send(producer, "new")
		s.see("latest then", string(next(latest).Payload()))
	}
}

func readerSeek(s *stage) {
	producer := s.plain(s.topic(""))
	var ids []pulsar.MessageID
	for i := range 10 {
		id, err := producer.Send(context.Background(),
			&pulsar.ProducerMessage{Payload: fmt.Append(nil, i)})
		must(err)
		ids = append(ids, id)
	}
	reader := s.reader(s.topic(""), pulsar.EarliestMessageID(), false)
	s.see("first", readAll(reader))
	for _, target := range []pulsar.MessageID{earliest, ids[4], ids[9]} {
		must(reader.Seek(target))
		time.Sleep(silence)
		s.see("after a seek", readAll(reader))
	}
}

func seekByID(s *stage) {
	for i, kind := range subscriptionTypes[:3] {
		options := pulsar.ConsumerOptions{Topic: s.topic("-" + typeNames[i]), Type: kind}
		consumer := s.subscribe(options)
		producer := s.plain(options.Topic)
		s.send(producer, numbered("", 10)...)
		got := s.receiveAndAck(consumer, 10)
		time.Sleep(ackGrouping)
		targets := []pulsar.MessageID{earliest, got[4].ID(), got[9].ID(), latest}
		for step, count := range []int{10, 5, 0, 0} {
			must(consumer.Seek(targets[step]))
			what := fmt.Sprintf("%s seek %d", typeNames[i], step)
			s.see(what, texts(s.receiveAndAck(consumer, count)))
			s.see("more", texts(s.untilSilence(consumer, silence)))
		}
		s.send(producer, "new")
		s.see("new", texts(s.receiveAndAck(consumer, 1)))
	}
}

func seekByTime(s *stage) {
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic("")})
	producer := s.plain(s.topic(""))
	var moments []time.Time
	for i := range 4 {
		time.Sleep(50 * time.Millisecond)
		moments = append(moments, time.Now())
		time.Sleep(50 * time.Millisecond)
		s.send(producer, fmt.Sprint(i))
	}
	s.receiveAndAck(consumer, 4)
	time.Sleep(ackGrouping)
	for step, count := range []int{4, 3, 2, 1} {
		must(consumer.SeekByTime(moments[step]))
		s.see(fmt.Sprint("moment ", step), texts(s.receiveAndAck(consumer, count)))
		s.see("more", texts(s.untilSilence(consumer, silence)))
	}
}

func lastMessageID(s *stage) {
	for _, batched := range []bool{false, true} {
		topic := s.topic(fmt.Sprint("-", batched))
		consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic})
		s.send(s.fours(topic, batched), numbered("", 8)...)
		got := s.receiveAndAck(consumer, 8)
		ids, err := consumer.GetLastMessageIDs()
		must(err)
		last := got[7].ID()
		s.see("ledger and entry of the last received",
			ids[0].LedgerID() == last.LedgerID() && ids[0].EntryID() == last.EntryID())
		s.see("batch index", ids[0].BatchIdx())
		s.see("entries", ids[0].EntryID()+1)
	}
}
