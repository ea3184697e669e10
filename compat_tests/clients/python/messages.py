"""Messages through the server and back: compression, batches, chunks, encryption, properties."""

from __future__ import annotations

import random
from functools import partial

import pulsar

from compat_tests.clients.python.scenario import (
    Receipts,
    Stage,
    receive_many,
    receive_together,
    receive_until_silence,
    scenario,
    send_all,
    texts,
)

COMPRESSIONS = {
    "none": pulsar.CompressionType.NONE,
    "lz4": pulsar.CompressionType.LZ4,
    "zlib": pulsar.CompressionType.ZLib,
    "zstd": pulsar.CompressionType.ZSTD,
    "snappy": pulsar.CompressionType.SNAPPY,
}
MESSAGE_COUNT = 40


def _produce_consume(compression: str, batched: bool, stage: Stage) -> None:
    consumer = stage.client.subscribe(stage.topic(), "s")
    producer = stage.client.create_producer(
        stage.topic(),
        compression_type=COMPRESSIONS[compression],
        batching_enabled=batched,
        batching_max_messages=15,
        batching_max_publish_delay_ms=1000,
        properties={"producer": "p"},
    )
    for number in range(MESSAGE_COUNT):
        producer.send_async(
            (f"text {number} " * (number + 1)).encode(),
            None,
            properties={"number": str(number), "ä": "ö"},
            partition_key=f"key-{number % 3}" if number % 2 else None,
            ordering_key="o" if number % 5 == 0 else None,
            event_timestamp=1_700_000_000_000 + number if number % 4 == 0 else None,
        )
    producer.flush()
    received = receive_many(consumer, MESSAGE_COUNT)
    assert [m.properties()["number"] for m in received] == [str(n) for n in range(MESSAGE_COUNT)]
    for message in received:
        stage.see_message("message", message)
        stage.see("batch index", message.message_id().batch_index())
    stage.see("more", texts(receive_until_silence(consumer, 200)))


for _compression in COMPRESSIONS:
    for _batched in (False, True):
        scenario(f"produce-consume-{_compression}-{'batched' if _batched else 'unbatched'}")(
            partial(_produce_consume, _compression, _batched)
        )


@scenario("empty-and-binary-payloads")
def empty_and_binary_payloads(stage: Stage) -> None:
    consumer = stage.client.subscribe(stage.topic(), "s")
    producer = stage.client.create_producer(stage.topic(), batching_enabled=False)
    for payload in (b"", b"\0" * 10, bytes(range(256)), b"x" * 1_000_000):
        producer.send(payload)
    for message in receive_many(consumer, 4):
        stage.see_message("message", message)


@scenario("too-big-refused")
def too_big_refused(stage: Stage) -> None:
    producer = stage.client.create_producer(stage.topic(), batching_enabled=False)
    stage.see_error("six megabytes", lambda: producer.send(b"x" * 6_000_000))
    stage.see_error("small one after it", lambda: producer.send(b"small"))


@scenario("chunked-20-megabytes")
def chunked(stage: Stage) -> None:
    consumer = stage.client.subscribe(stage.topic(), "s")
    producer = stage.client.create_producer(
        stage.topic(), chunking_enabled=True, batching_enabled=False
    )
    content = random.Random(7).randbytes(20 * 1024 * 1024)
    producer.send(content, properties={"size": "20 MB"})
    producer.send(b"after it")
    first, second = receive_many(consumer, 2)
    assert first.data() == content
    stage.see_message("chunked", first)
    stage.see_message("after it", second)


@scenario("chunked-on-shared")
def chunked_on_shared(stage: Stage) -> None:
    """A message in chunks is whole at one of the consumers, whatever comes between its chunks."""
    topic = stage.topic()
    consumers = [
        stage.client.subscribe(topic, "s", pulsar.ConsumerType.Shared, receiver_queue_size=100)
        for _ in range(3)
    ]
    producers = [
        stage.new_client().create_producer(topic, chunking_enabled=True, batching_enabled=False)
        for _ in range(2)
    ]
    sent = []
    receipts = Receipts()
    for number in range(4):
        for each, producer in enumerate(producers):
            content = random.Random(number * 2 + each).randbytes(11 * 1024 * 1024)
            sent.append(content)
            producer.send_async(content, receipts)
    stage.see("receipts", [each.name for each in receipts.take(len(sent))])
    received = [each.data() for part in receive_together(consumers, 8) for each in part]
    assert sorted(received) == sorted(sent)
    stage.see("whole messages", len(received))


@scenario("encrypted")
def encrypted(stage: Stage) -> None:
    public, private = (str(stage.keys_directory / f"{part}.pem") for part in ("public", "private"))
    keys = pulsar.CryptoKeyReader(public, private)
    consumer = stage.client.subscribe(stage.topic(), "s", crypto_key_reader=keys)
    without_key = stage.client.subscribe(
        stage.topic(),
        "no-key",
        crypto_failure_action=pulsar.ConsumerCryptoFailureAction.CONSUME,
    )
    for batched in (False, True):
        producer = stage.client.create_producer(
            stage.topic(),
            encryption_key="the-key",
            crypto_key_reader=keys,
            batching_enabled=batched,
            compression_type=pulsar.CompressionType.LZ4,
        )
        send_all(producer, [f"secret {batched} {number}" for number in range(5)])
        producer.close()
    for message in receive_many(consumer, 10):
        stage.see_message("decrypted", message)
    for message in receive_many(without_key, 6):  # five single ones and one whole batch
        assert b"secret" not in message.data()
        context = message.encryption_context()
        assert context is not None
        used = context.keys()
        stage.see("key names", sorted(key.key for key in used))
        stage.see("batch size", context.batch_size())
