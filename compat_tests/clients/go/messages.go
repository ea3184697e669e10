package main

import (
	"context"
	"fmt"
	"math/rand"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/crypto"
)

const messageCount = 40

var compressions = map[string]pulsar.CompressionType{
	"none":   pulsar.NoCompression,
	"lz4":    pulsar.LZ4,
	"zlib":   pulsar.ZLib,
	"zstd":   pulsar.ZSTD,
	"snappy": pulsar.SNAPPY,
}

func init() {
	for name, compression := range compressions {
		for _, batched := range []bool{false, true} {
			kind := "unbatched"
			if batched {
				kind = "batched"
			}
			register("produce-consume-"+name+"-"+kind, func(s *stage) {
				produceConsume(s, compression, batched)
			})
		}
	}
	register("chunked-20-megabytes", chunked)
	register("too-big-refused", tooBig)
	register("encrypted", encrypted)
}

func produceConsume(s *stage, compression pulsar.CompressionType, batched bool) {
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic("")})
	producer := s.produce(pulsar.ProducerOptions{
		Topic:                   s.topic(""),
		CompressionType:         compression,
		DisableBatching:         !batched,
		BatchingMaxMessages:     15,
		BatchingMaxPublishDelay: time.Second,
	})
	for i := range messageCount {
		message := &pulsar.ProducerMessage{
			Payload:    []byte(strings.Repeat(fmt.Sprintf("text %d ", i), i+1)),
			Properties: map[string]string{"number": fmt.Sprint(i), "ä": "ö"},
		}
		if i%2 == 1 {
			message.Key = fmt.Sprintf("key-%d", i%3)
		}
		if i%5 == 0 {
			message.OrderingKey = "o"
		}
		if i%4 == 0 {
			message.EventTime = time.UnixMilli(1_700_000_000_000 + int64(i))
		}
		producer.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			if err != nil {
				s.see("send failed", err.Error())
			}
		})
	}
	must(producer.Flush())
	for _, message := range s.receiveAndAck(consumer, messageCount) {
		s.seeMessage("message", message)
	}
	s.see("more", texts(s.untilSilence(consumer, 200*time.Millisecond)))
}

func chunked(s *stage) {
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: s.topic("")})
	producer := s.produce(pulsar.ProducerOptions{
		Topic: s.topic(""), DisableBatching: true, EnableChunking: true,
	})
	content := make([]byte, 20*1024*1024)
	random := rand.New(rand.NewSource(7))
	random.Read(content)
	s.send(producer, string(content), "after it")
	for _, message := range s.receiveAndAck(consumer, 2) {
		s.seeMessage("message", message)
	}
}

func tooBig(s *stage) {
	producer := s.produce(pulsar.ProducerOptions{Topic: s.topic(""), DisableBatching: true})
	for _, size := range []int{6_000_000, 6} {
		_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: make([]byte, size)})
		s.seeError(fmt.Sprintf("%d bytes", size), err)
	}
}

func encrypted(s *stage) {
	keys := crypto.NewFileKeyReader(s.Keys+"/public.pem", s.Keys+"/private.pem")
	consumer := s.subscribe(pulsar.ConsumerOptions{
		Topic:      s.topic(""),
		Decryption: &pulsar.MessageDecryptionInfo{KeyReader: keys},
	})
	withoutKey := s.subscribe(pulsar.ConsumerOptions{
		Topic:            s.topic(""),
		SubscriptionName: "no-key",
		Decryption: &pulsar.MessageDecryptionInfo{
			KeyReader:                   crypto.NewFileKeyReader("", "/no/such/key"),
			ConsumerCryptoFailureAction: crypto.ConsumerCryptoFailureActionConsume,
		},
	})
	for _, batched := range []bool{false, true} {
		producer := s.produce(pulsar.ProducerOptions{
			Topic:                   s.topic(""),
			DisableBatching:         !batched,
			BatchingMaxPublishDelay: time.Second,
			CompressionType:         pulsar.LZ4,
			Encryption:              &pulsar.ProducerEncryptionInfo{KeyReader: keys, Keys: []string{"the-key"}},
		})
		var payloads []string
		for i := range 5 {
			payloads = append(payloads, fmt.Sprintf("secret %v %d", batched, i))
		}
		s.send(producer, payloads...)
		producer.Close()
	}
	for _, message := range s.receiveAndAck(consumer, 10) {
		s.seeMessage("decrypted", message)
	}
	for _, message := range s.receiveAndAck(withoutKey, 6) {
		check(!strings.Contains(string(message.Payload()), "secret"), "it was not encrypted")
		var names []string
		for name := range message.GetEncryptionContext().Keys {
			names = append(names, name)
		}
		s.see("key names", names)
	}
}
