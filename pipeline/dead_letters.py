"""Publishes messages that their schema cannot decode to another topic, as bytes.

Payload, key, event time and properties stay as they are. The properties name where a message came
from, under the names that Pulsar's clients use for dead letters, and why it is there. A task that
Spark repeats publishes again: dead letters come at least once.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final, final

import pulsar

from pipeline.decode import message_id_text
from pipeline.sink import WriteFailed, client_of

if TYPE_CHECKING:
    from pipeline.options import Connection
    from pipeline.rows import Message

REAL_TOPIC: Final = "REAL_TOPIC"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
REASON: Final = "VELA_UNDECODABLE_REASON"
KEY_BASE64: Final = "VELA_KEY_BASE64"
"""The key, when it is not UTF-8: the client library publishes text keys only."""


@final
class DeadLetters:
    """The producer of one task, connected when it is first needed."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._client: pulsar.Client | None = None
        self._producer: pulsar.Producer | None = None
        self._refusal = ""

    def publish(self, topic: str, message: Message, reason: str) -> None:
        """Publish a message. Raises: WriteFailed."""
        properties = dict(message.properties)
        properties |= {
            REAL_TOPIC: topic,
            ORIGIN_MESSAGE_ID: message_id_text(message),
            REASON: reason,
        }
        key = None
        if message.key is not None:
            try:
                key = message.key.decode()
            except UnicodeDecodeError:
                properties[KEY_BASE64] = base64.b64encode(message.key).decode()
        self._connected().send_async(
            message.payload or b"",
            self._on_sent,
            properties=properties,
            partition_key=key,
            event_timestamp=message.event_time_ms or None,
        )

    def close(self) -> None:
        """Wait until all are stored. Raises: WriteFailed."""
        if self._client is None or self._producer is None:
            return
        try:
            self._producer.flush()
        except pulsar.PulsarException as error:
            raise WriteFailed(f"deadLetterTopic {self._topic}: {error}") from error
        finally:
            self._client.close()
        if self._refusal:
            raise WriteFailed(f"deadLetterTopic {self._topic}: {self._refusal}")

    def _connected(self) -> pulsar.Producer:
        if self._producer is None:
            self._client = client_of(self._connection)
            try:
                self._producer = self._client.create_producer(
                    self._topic, block_if_queue_full=True, batching_enabled=True
                )
            except pulsar.PulsarException as error:
                self._client.close()
                self._client = None
                raise WriteFailed(
                    f"no producer on deadLetterTopic {self._topic}: {error}"
                ) from error
        return self._producer

    def _on_sent(self, result: pulsar.Result, _message_id: pulsar.MessageId) -> None:
        if result != pulsar.Result.Ok:
            self._refusal = f"the broker did not take a message: {result}"
