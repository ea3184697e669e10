"""Options of the data source: names, defaults, and errors that say what was meant. Pure.

Names are those of StreamNative's connector, so that a job changes only its format, plus our own.
Spark hands option names over in lower case; messages use the documented spelling.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from pipeline.bookies.addresses import BY_ID, BookieAddresses, parse_bookie_addresses
from pipeline.offsets import Bound, InvalidOffset, parse_bound
from protocol.errors import InvalidTopicName
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE_URL_DEFAULT: Final = "pulsar://localhost:6650"
ADMIN_URL_DEFAULT: Final = "http://localhost:8080"
BYTES_PER_PARTITION_MAX_DEFAULT: Final = 64 * 1024 * 1024
POLL_TIMEOUT_MS_DEFAULT: Final = 120_000
PUBLISH_TIME_SKEW_MS_DEFAULT: Final = 600_000

_COMMON: Final = (
    "service.url",
    "admin.url",
    "topic",
    "pulsar.client.authPluginClassName",
    "pulsar.client.authParams",
    "pulsar.client.tlsTrustCertsFilePath",
    "pulsar.client.tlsAllowInsecureConnection",
    "pulsar.client.operationTimeoutMs",
)
_SOURCE: Final = (
    *_COMMON,
    "topics",
    "topicsPattern",
    "startingOffsets",
    "endingOffsets",
    "startingTime",
    "endingTime",
    "pollTimeoutMs",
    "failOnDataLoss",
    "subscriptionPrefix",
    "predefinedSubscription",
    "allowDifferentTopicSchemas",
    "maxBytesPerTrigger",
    "maxRowsPerTrigger",
    "readEngine",
    "bookieAddresses",
    "metadataStoreUrl",
    "metadataStoreConfigPath",
    "minPartitions",
    "maxBytesPerPartition",
    "includeMetadata",
    "rawValues",
    "mode",
    "columnNameOfCorruptRecord",
    "deadLetterTopic",
    "retentionAnchor",
    "waitingForNonExistedTopic",
    "publishTimeSkewMs",
    "pulsar.reader.receiverQueueSize",
)
_SINK: Final = (
    *_COMMON,
    "sinkMode",
    "producerName",
    "dedupBatch",
    "reportFile",
    "pulsar.producer.batchingEnabled",
    "pulsar.producer.batchingMaxMessages",
    "pulsar.producer.batchingMaxPublishDelayMs",
    "pulsar.producer.compressionType",
    "pulsar.producer.sendTimeoutMs",
    "pulsar.producer.maxPendingMessages",
    "pulsar.producer.blockIfQueueFull",
)
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname", "path", "outputmode"})
"""What Spark itself adds to a sink's or a source's options."""
ENGINES: Final = ("auto", "broker", "bookie")
ANCHORS: Final = ("subscription", "none")
SINK_MODES: Final = ("at-least-once", "dedup")
FAIL_FAST: Final = "FAILFAST"
PERMISSIVE: Final = "PERMISSIVE"
DROP_MALFORMED: Final = "DROPMALFORMED"
MODES: Final = (FAIL_FAST, PERMISSIVE, DROP_MALFORMED)
"""Ways to treat a message that its schema cannot decode, named as in Spark's file sources."""
CORRUPT_COLUMN_DEFAULT: Final = "_corrupt_record"
COMPRESSIONS: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")


class InvalidOption(ValueError):
    """An option that is unknown, or whose value cannot be used; the text says what to write."""


@final
@dataclass(frozen=True, slots=True)
class Connection:
    """The addresses of the broker, and the credentials for it."""

    service_url: str = SERVICE_URL_DEFAULT
    admin_url: str = ADMIN_URL_DEFAULT
    token: str = ""
    token_source: str = ""
    """`file:PATH` or `env:NAME` while the token is still to be read, see `pipeline.credentials`."""
    tls_trust_certs_file: str = ""
    tls_allow_insecure: bool = False
    operation_timeout_ms: int = 30_000


@final
@dataclass(frozen=True, slots=True)
class Malformed:
    """How messages that their schema cannot decode are treated.

    `corrupt_column` gets their payload with PERMISSIVE; `dead_letter_topic` is empty when they are
    not published again.
    """

    mode: str = FAIL_FAST
    corrupt_column: str = CORRUPT_COLUMN_DEFAULT
    dead_letter_topic: str = ""

    @property
    def fails(self) -> bool:
        """Whether one such message ends the query."""
        return self.mode == FAIL_FAST

    @property
    def column(self) -> str:
        """The column that has the payload of such messages; empty when there is none."""
        return self.corrupt_column if self.mode == PERMISSIVE else ""

    @property
    def drops(self) -> bool:
        """Whether rows of such messages are left out."""
        return self.mode == DROP_MALFORMED


@final
@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Which topics to read, and how. Either `topics` or `topics_pattern` is set. Times are ms since
    1970."""

    connection: Connection
    topics: tuple[str, ...] = ()
    topics_pattern: str = ""
    starting: Bound | None = None
    ending: Bound | None = None
    starting_time_ms: int | None = None
    ending_time_ms: int | None = None
    poll_timeout_ms: int = POLL_TIMEOUT_MS_DEFAULT
    fail_on_data_loss: bool = False
    subscription_prefix: str = "spark-vela"
    predefined_subscription: str = ""
    allow_different_topic_schemas: bool = False
    bytes_per_trigger_max: int | None = None
    rows_per_trigger_max: int | None = None
    read_engine: str = "broker"
    bookie_addresses: BookieAddresses = BY_ID
    metadata_store_url: str = ""
    """Where registrations of bookies are still to be read, see `pipeline.resolving`."""
    metadata_store_config_path: str = ""
    partitions_min: int = 1
    bytes_per_partition_max: int = BYTES_PER_PARTITION_MAX_DEFAULT
    include_metadata: bool = True
    raw_values: bool = False
    malformed: Malformed = field(default_factory=Malformed)
    retention_anchor: bool = True
    wait_for_topic: bool = False
    publish_time_skew_ms: int = PUBLISH_TIME_SKEW_MS_DEFAULT
    receiver_queue_size: int = 1000


@final
@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How the stock client produces."""

    batching_enabled: bool = True
    batching_messages_max: int = 1000
    batching_delay_ms_max: int = 10
    compression: str = "NONE"
    send_timeout_ms: int = 30_000
    pending_messages_max: int = 1000
    block_if_queue_full: bool = True


@final
@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write and how. `topic` is empty when every row names its own in `__topic`.
    `dedup_batch` numbers the batch of a sink that is written to from `foreachBatch`.
    `report_file` is where the driver tells what a batch write has stored, empty for nowhere."""

    connection: Connection
    topic: str = ""
    dedup: bool = False
    producer_name: str = ""
    dedup_batch: int | None = None
    report_file: str = ""
    producer: ProducerSettings = field(default_factory=ProducerSettings)


def source_options(given: Mapping[str, str], *, streaming: bool | None) -> SourceOptions:
    """Options of `spark.read` and `spark.readStream`; None while it is not known which.

    Raises: InvalidOption.
    """
    read = _Reader(given, _SOURCE)
    topics, pattern = _topics(read)
    starting, ending = read.bound("startingOffsets"), read.bound("endingOffsets")
    starting_time, ending_time = read.time("startingTime"), read.time("endingTime")
    if starting is not None and starting_time is not None:
        raise InvalidOption("give startingOffsets or startingTime, not both")
    if ending is not None and ending_time is not None:
        raise InvalidOption("give endingOffsets or endingTime, not both")
    if starting_time is not None and ending_time is not None and starting_time >= ending_time:
        raise InvalidOption(
            f"startingTime {starting_time} is not before endingTime {ending_time}: nothing can lie "
            "between them"
        )
    if streaming and (ending is not None or ending_time is not None):
        raise InvalidOption("a stream has no end: endingOffsets and endingTime are for spark.read")
    if streaming is False and starting is not None and starting.symbol == "latest":
        raise InvalidOption(
            "startingOffsets=latest is for spark.readStream: a batch would be empty"
        )
    if ending is not None and ending.symbol == "earliest":
        raise InvalidOption("endingOffsets=earliest would be an empty batch")
    return SourceOptions(
        connection=_connection(read),
        topics=topics,
        topics_pattern=pattern,
        starting=starting,
        ending=ending,
        starting_time_ms=starting_time,
        ending_time_ms=ending_time,
        poll_timeout_ms=read.number("pollTimeoutMs", POLL_TIMEOUT_MS_DEFAULT),
        fail_on_data_loss=read.flag("failOnDataLoss", False),
        subscription_prefix=read.text("subscriptionPrefix", "spark-vela"),
        predefined_subscription=read.text("predefinedSubscription", ""),
        allow_different_topic_schemas=read.flag("allowDifferentTopicSchemas", False),
        bytes_per_trigger_max=read.optional_number("maxBytesPerTrigger"),
        rows_per_trigger_max=read.optional_number("maxRowsPerTrigger"),
        read_engine=read.choice("readEngine", ENGINES, "broker"),
        bookie_addresses=_bookie_addresses(read),
        metadata_store_url=read.text("metadataStoreUrl", ""),
        metadata_store_config_path=read.text("metadataStoreConfigPath", ""),
        partitions_min=read.number("minPartitions", 1),
        bytes_per_partition_max=read.number(
            "maxBytesPerPartition", BYTES_PER_PARTITION_MAX_DEFAULT
        ),
        include_metadata=read.flag("includeMetadata", True),
        raw_values=read.flag("rawValues", False),
        malformed=_malformed(read),
        retention_anchor=read.choice("retentionAnchor", ANCHORS, ANCHORS[0]) == ANCHORS[0],
        wait_for_topic=read.flag("waitingForNonExistedTopic", False),
        publish_time_skew_ms=read.number(
            "publishTimeSkewMs", PUBLISH_TIME_SKEW_MS_DEFAULT, least=0
        ),
        receiver_queue_size=read.number("pulsar.reader.receiverQueueSize", 1000),
    )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Options of `df.write` and `df.writeStream`.

    Raises: InvalidOption.
    """
    read = _Reader(given, _SINK)
    topic = read.text("topic", "")
    return SinkOptions(
        connection=_connection(read),
        topic=_topic_name(topic) if topic else "",
        dedup=read.choice("sinkMode", SINK_MODES, SINK_MODES[0]) == "dedup",
        producer_name=read.text("producerName", ""),
        dedup_batch=read.optional_number("dedupBatch", least=0),
        report_file=read.text("reportFile", ""),
        producer=ProducerSettings(
            batching_enabled=read.flag("pulsar.producer.batchingEnabled", True),
            batching_messages_max=read.number("pulsar.producer.batchingMaxMessages", 1000),
            batching_delay_ms_max=read.number("pulsar.producer.batchingMaxPublishDelayMs", 10),
            compression=read.choice("pulsar.producer.compressionType", COMPRESSIONS, "NONE"),
            send_timeout_ms=read.number("pulsar.producer.sendTimeoutMs", 30_000),
            pending_messages_max=read.number("pulsar.producer.maxPendingMessages", 1000),
            block_if_queue_full=read.flag("pulsar.producer.blockIfQueueFull", True),
        ),
    )


def check_not_ahead(options: SourceOptions, now_ms: int) -> None:
    """A read that begins after everything there can be is a mistake in the time, not an empty read.

    Publish times are the clocks of producers, so the bound is `publishTimeSkewMs` after now.

    Raises: InvalidOption.
    """
    start_ms = options.starting_time_ms
    if start_ms is not None and start_ms > now_ms + options.publish_time_skew_ms:
        raise InvalidOption(
            f"startingTime {start_ms} lies {(start_ms - now_ms) / 1000:.0f} s in the future: "
            "it is milliseconds since 1970"
        )


def topic_matches(pattern: str, topic: str) -> bool:
    """Whether `topicsPattern` takes a topic, by its full name without the partition."""
    return re.fullmatch(pattern, TopicName.parse(topic).partitioned_base.full) is not None


def pattern_namespace(pattern: str) -> tuple[str, str]:
    """Domain and `tenant/namespace` a pattern looks in. Raises: InvalidOption."""
    domain, _, rest = pattern.partition("://")
    parts = rest.split("/")
    if domain != "persistent" or len(parts) < 3:
        raise InvalidOption(
            f"topicsPattern must begin with persistent://tenant/namespace/, got {pattern!r}"
        )
    return domain, f"{parts[0]}/{parts[1]}"


def _topics(read: _Reader) -> tuple[tuple[str, ...], str]:
    given = [name for name in ("topic", "topics", "topicsPattern") if read.text(name, "")]
    if len(given) != 1:
        raise InvalidOption(
            "give exactly one of topic, topics (comma separated) and topicsPattern, got "
            + (" and ".join(given) or "none")
        )
    if given == ["topicsPattern"]:
        pattern = read.text("topicsPattern", "")
        if "://" not in pattern:
            pattern = f"persistent://{pattern if '/' in pattern else 'public/default/' + pattern}"
        pattern_namespace(pattern)
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidOption(f"topicsPattern is no regular expression: {error}") from None
        return (), pattern
    if given == ["topic"]:
        return (_topic_name(read.text("topic", "")),), ""
    names = [name.strip() for name in read.text("topics", "").split(",")]
    return tuple(dict.fromkeys(_topic_name(name) for name in names if name)), ""


def _topic_name(text: str) -> str:
    try:
        name = TopicName.parse(text.strip())
    except InvalidTopicName as error:
        raise InvalidOption(str(error)) from None
    if not name.persistent:
        raise InvalidOption(
            f"{name.full} keeps nothing that could be read later: use persistent://"
        )
    return name.full


def _bookie_addresses(read: _Reader) -> BookieAddresses:
    try:
        return BookieAddresses(parse_bookie_addresses(read.text("bookieAddresses", "")))
    except ValueError as error:
        raise InvalidOption(f"bookieAddresses: {error}") from None


def _malformed(read: _Reader) -> Malformed:
    topic = read.text("deadLetterTopic", "")
    made = Malformed(
        read.choice("mode", MODES, FAIL_FAST),
        read.text("columnNameOfCorruptRecord", CORRUPT_COLUMN_DEFAULT),
        _topic_name(topic) if topic else "",
    )
    if made.fails and topic:
        raise InvalidOption(
            f"deadLetterTopic takes messages that are passed over: set mode={PERMISSIVE} or "
            f"mode={DROP_MALFORMED}"
        )
    return made


def _connection(read: _Reader) -> Connection:
    plugin, params = (
        read.text("pulsar.client.authPluginClassName", ""),
        read.text("pulsar.client.authParams", ""),
    )
    token = params.removeprefix("token:") if plugin.endswith("AuthenticationToken") else ""
    if plugin and not token:
        raise InvalidOption(
            "pulsar.client.authPluginClassName: only AuthenticationToken with "
            "pulsar.client.authParams=token:..., file:///... or env:... is supported, "
            f"got {plugin!r}"
        )
    source = token if token.startswith(("file:", "env:")) else ""
    service_url = read.text("service.url", SERVICE_URL_DEFAULT)
    if not re.match(r"pulsar(\+ssl)?://[^/]+", service_url):
        raise InvalidOption(f"service.url must begin with pulsar://host:port, got {service_url!r}")
    admin_url = read.text("admin.url", ADMIN_URL_DEFAULT).rstrip("/")
    if not re.match(r"https?://[^/]+", admin_url):
        raise InvalidOption(f"admin.url must begin with http://host:port, got {admin_url!r}")
    return Connection(
        service_url=service_url,
        admin_url=admin_url,
        token="" if source else token,
        token_source=source,
        tls_trust_certs_file=read.text("pulsar.client.tlsTrustCertsFilePath", ""),
        tls_allow_insecure=read.flag("pulsar.client.tlsAllowInsecureConnection", False),
        operation_timeout_ms=read.number("pulsar.client.operationTimeoutMs", 30_000),
    )


@final
class _Reader:
    """Typed access to options, after a check that all are known."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        by_lower = {name.lower(): name for name in known}
        for name in sorted(self._given.keys() - by_lower.keys() - _SPARKS_OWN):
            close = difflib.get_close_matches(name, by_lower, n=1, cutoff=0.6)
            hint = f": did you mean {by_lower[close[0]]!r}?" if close else ""
            raise InvalidOption(f"unknown option {name!r}{hint or '; known: ' + ', '.join(known)}")

    def text(self, name: str, default: str) -> str:
        return self._given.get(name.lower(), default)

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name, str(default)).lower()
        if value not in ("true", "false"):
            raise InvalidOption(f"{name} must be true or false, got {value!r}")
        return value == "true"

    def optional_number(self, name: str, *, least: int = 1) -> int | None:
        value = self.text(name, "")
        if not value:
            return None
        if not value.isdecimal() or int(value) < least:
            raise InvalidOption(f"{name} must be a whole number from {least} on, got {value!r}")
        return int(value)

    def number(self, name: str, default: int, *, least: int = 1) -> int:
        value = self.optional_number(name, least=least)
        return default if value is None else value

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name, default)
        by_lower = {choice.lower(): choice for choice in choices}
        if value.lower() not in by_lower:
            raise InvalidOption(f"{name} must be one of {', '.join(choices)}, got {value!r}")
        return by_lower[value.lower()]

    def time(self, name: str) -> int | None:
        value = self.text(name, "")
        if not value:
            return None
        if not value.isdecimal():
            raise InvalidOption(f"{name} must be milliseconds since 1970, got {value!r}")
        return int(value)

    def bound(self, name: str) -> Bound | None:
        value = self.text(name, "")
        if not value:
            return None
        try:
            return parse_bound(value)
        except (InvalidOffset, json.JSONDecodeError) as error:
            raise InvalidOption(f"{name}: {error}") from None
