package main

import (
	"context"
	"regexp"
	"strings"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	personHead = `{"type":"record","name":"Person","namespace":"compat","fields":[` +
		`{"name":"name","type":"string"},{"name":"age","type":`
	personDefinition       = personHead + `"int"}]}`
	otherAgeDefinition     = personHead + `"string"}]}`
	withCityDefinition     = personHead + `"int"},{"name":"city","type":"string","default":"x"}]}`
	withBareCityDefinition = personHead + `"int"},{"name":"city","type":"string"}]}`
)

type person struct {
	Name string `json:"name" avro:"name"`
	Age  int    `json:"age" avro:"age"`
}

var timestamp = regexp.MustCompile(`"timestamp":\d+,?`)

func init() {
	register("schema-string", func(s *stage) {
		text := new(string)
		roundTrip(s, pulsar.NewStringSchema(nil), "grüße", &text)
	})
	register("schema-int64", func(s *stage) {
		var number int64
		roundTrip(s, pulsar.NewInt64Schema(nil), int64(17), &number)
	})
	register("schema-bytes", func(s *stage) {
		var content []byte
		roundTrip(s, pulsar.NewBytesSchema(nil), []byte("bytes"), &content)
	})
	register("schema-json", func(s *stage) {
		roundTrip(s, pulsar.NewJSONSchema(personDefinition, nil), person{"a", 1}, &person{})
	})
	register("schema-avro", func(s *stage) {
		roundTrip(s, pulsar.NewAvroSchema(personDefinition, nil), person{"a", 1}, &person{})
	})
	register("schema-incompatible", incompatible)
}

func (s *stage) seeRegistered(topic string) {
	path := "/admin/v2/schemas/" + strings.TrimPrefix(topic, "persistent://") + "/schema"
	s.see("registered", timestamp.ReplaceAllString(s.http("GET", path, ""), ""))
}

func roundTrip(s *stage, schema pulsar.Schema, value any, into any) {
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic(""), Schema: schema})
	producer := s.produce(pulsar.ProducerOptions{Topic: s.topic(""), Schema: schema})
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Value: value})
	must(err)
	message := s.receiveAndAck(consumer, 1)[0]
	must(message.GetSchemaValue(into))
	s.see("value", into)
	s.see("version", message.SchemaVersion())
	s.seeRegistered(s.topic(""))
}

func incompatible(s *stage) {
	for _, kind := range []string{"avro", "json"} {
		schema := func(definition string) pulsar.Schema {
			if kind == "avro" {
				return pulsar.NewAvroSchema(definition, nil)
			}
			return pulsar.NewJSONSchema(definition, nil)
		}
		topic := s.topic("-" + kind)
		tryProducer := func(what string, schema pulsar.Schema) {
			_, err := s.client().CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: schema})
			s.seeError(kind+" producer, "+what, err)
		}
		tryConsumer := func(what string, schema pulsar.Schema) {
			_, err := s.trySubscribe(pulsar.ConsumerOptions{Topic: topic, Schema: schema})
			s.seeError(kind+" consumer, "+what, err)
		}
		tryProducer("first", schema(personDefinition))
		tryProducer("another type", schema(otherAgeDefinition))
		tryConsumer("another type", schema(otherAgeDefinition))
		tryProducer("text", pulsar.NewStringSchema(nil))
		tryProducer("no schema", nil)
		tryProducer("bytes", pulsar.NewBytesSchema(nil))
		tryConsumer("bytes", pulsar.NewBytesSchema(nil))
		tryConsumer("the right one", schema(personDefinition))
		tryProducer("a field more without a default", schema(withBareCityDefinition))
		tryProducer("a field more with a default", schema(withCityDefinition))
		s.seeRegistered(topic)
	}
}
