package main

import (
	"context"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

func init() {
	register("producer-name-in-use", producerNameInUse)
	register("producer-access-modes", producerAccessModes)
	register("sequence-ids", sequenceIDs)
	register("names-refused", namesRefused)
}

func producerNameInUse(s *stage) {
	options := pulsar.ProducerOptions{Topic: s.topic(""), Name: "p"}
	first := s.produce(options)
	other := s.newClient()
	_, err := other.CreateProducer(options)
	s.seeError("the same name again", err)
	first.Close()
	_, err = other.CreateProducer(options)
	s.seeError("after the first has closed", err)
}

func producerAccessModes(s *stage) {
	create := func(mode pulsar.ProducerAccessMode) (pulsar.Producer, error) {
		return s.client().CreateProducer(pulsar.ProducerOptions{
			Topic: s.topic(""), ProducerAccessMode: mode, DisableBatching: true,
		})
	}
	exclusive, err := create(pulsar.ProducerAccessModeExclusive)
	must(err)
	s.send(exclusive, "from the exclusive one")
	_, err = create(pulsar.ProducerAccessModeShared)
	s.seeError("Shared beside Exclusive", err)
	_, err = create(pulsar.ProducerAccessModeExclusive)
	s.seeError("Exclusive beside Exclusive", err)
	exclusive.Close()
	time.Sleep(ackGrouping)
	shared, err := create(pulsar.ProducerAccessModeShared)
	must(err)
	_, err = create(pulsar.ProducerAccessModeExclusive)
	s.seeError("Exclusive beside Shared", err)
	s.send(shared, "from the shared one")
}

func sequenceIDs(s *stage) {
	// Of a batch this client takes the first id for the last, and time decides what is in one.
	producer := s.produce(pulsar.ProducerOptions{
		Topic: s.topic(""), Name: "p", DisableBatching: true,
	})
	s.see("new", producer.LastSequenceID())
	s.send(producer, "a", "b", "c")
	s.see("after three", producer.LastSequenceID())
	given := int64(17)
	_, err := producer.Send(context.Background(),
		&pulsar.ProducerMessage{Payload: []byte("d"), SequenceID: &given})
	must(err)
	s.see("after a given one", producer.LastSequenceID())
}

func namesRefused(s *stage) {
	for _, topic := range []string{
		"persistent://no-such-tenant/ns/t", "persistent://public/no-such-namespace/t",
	} {
		_, err := s.client().CreateProducer(pulsar.ProducerOptions{Topic: topic})
		s.seeError("producer on "+topic, err)
		_, err = s.trySubscribe(pulsar.ConsumerOptions{Topic: topic})
		s.seeError("consumer on "+topic, err)
	}
}
