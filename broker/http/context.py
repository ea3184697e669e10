"""The arguments of handlers: the broker, and the request with its decoded names."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, final
from urllib.parse import parse_qsl

from broker.ground.refusal import Refusal
from broker.http.clusters.dynamic_configuration import with_dynamic
from broker.tenancy.authorization.authorizer import rules_from
from protocol.json_numbers import number_of
from protocol.topic_name import NON_PERSISTENT, PERSISTENT, TopicName
from security.caller import UNAUTHENTICATED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from broker.ground.config import BrokerConfig
    from broker.peers.broker_address import BrokerAddress
    from broker.peers.ownership import Cluster
    from broker.tenancy.authorization.authorizer import Authorizer
    from broker.tenancy.namespaces.namespaces import Namespaces
    from broker.tenancy.schemas.registry import SchemaRegistry
    from broker.topics.service import BrokerService
    from ledgers.client import LedgerClient
    from metadata.store import MetadataStore
    from runtime.clock import Clock
    from security.caller import Caller

Json = Any
JSON_VALUES_MAX: Final = 100_000
"""More commas and brackets than this would take the event loop too long to read."""
_SEPARATORS: Final = (b",", b"[", b"{")
_TRUE: Final = frozenset({"true", "1", ""})


class MetricsPage(Protocol):
    """One reading of all metrics."""

    def pieces(self) -> Iterator[str]:
        """Its text, in bounded pieces."""


class Metrics(Protocol):
    """The source of `/metrics`."""

    async def page(self) -> MetricsPage:
        """A reading of everything, as of now."""


class StorageHealth(Protocol):
    """The state of what stores messages. Sentences for the user; empty: nothing is wrong."""

    @property
    def failure(self) -> str:
        """Why the broker is of no use to clients."""

    @property
    def unwritable(self) -> str:
        """Why nothing can be stored now, although what is stored can be read."""

    @property
    def damage(self) -> str:
        """Stored data that cannot be read."""


class Shadows(Protocol):
    """Topics that have the messages of others."""

    @property
    def refusal(self) -> str:
        """Why this broker makes none; empty: it does."""

    async def check(self, shadow: TopicName, properties: Mapping[str, str]) -> None:
        """Raises: BrokerError: these properties cannot make a shadow of the topic."""

    async def create(self, shadow: TopicName, properties: Mapping[str, str]) -> None:
        """Make one of the source that its properties name. Raises: as `check`."""

    async def end(self, name: str, close: Callable[[], Awaitable[None]]) -> bool:
        """Make this managed ledger that of an ordinary topic. `close` closes its topic. Returns
        whether it was a shadow. Raises: BrokerError."""


@final
@dataclass(slots=True, kw_only=True)
class AdminContext:
    """One per broker. `ready` becomes True once a client can actually use the broker."""

    config: BrokerConfig
    """The configuration in force: `file_config` with the dynamic values over it."""
    file_config: BrokerConfig
    clock: Clock
    store: MetadataStore
    namespaces: Namespaces
    schemas: SchemaRegistry
    ledgers: LedgerClient
    service: BrokerService
    health: StorageHealth
    bookie_addresses: Mapping[str, str]
    """Bookie id, as in ledger metadata -> `host:port` where it serves reads to other processes."""
    metrics: Metrics
    address: BrokerAddress
    version: str
    metadata_url: str = ""
    """Where other processes find the metadata; empty: in this process only."""
    cluster: Cluster | None = None
    """None: this broker has all topics."""
    shadows: Shadows | None = None
    """None: there are none."""
    decisions: Authorizer | None = None
    """None: every caller may do everything."""
    use_for_owners: Callable[[BrokerConfig], None]
    """Hands a configuration that is in force now to what decides about the owners of topics."""
    dynamic: dict[str, str] = field(default_factory=dict)
    """Dynamic configuration: key -> value as given."""

    async def set_dynamic(self, values: dict[str, str]) -> None:
        """Apply the dynamic configuration. It is in force when this returns."""
        self.dynamic = values
        self.config = with_dynamic(self.file_config, values)
        self.schemas.use(self.config)
        self.service.config = self.config
        self.use_for_owners(self.config)
        if self.decisions is not None:
            self.decisions.use(rules_from(self.config))
        await self.namespaces.use(self.config)

    async def check_healthy(self) -> None:
        """Raises: Refusal: the broker cannot store messages now."""
        await self.check_ready()
        if self.health.unwritable:
            raise Refusal(503, self.health.unwritable)
        damage = self.store.damage or self.health.damage
        if damage:
            raise Refusal(503, f"Stored data is damaged: {damage}")

    async def check_ready(self) -> None:
        """Raises: Refusal: clients cannot use the broker. With a full disk they can still read."""
        if self.health.failure:
            raise Refusal(503, self.health.failure)

    @property
    def broker_id(self) -> str:
        """Pulsar's name of a broker: the host and port of its web service."""
        return self.address.broker_id


@final
class AdminRequest:
    """One request: names of the path (decoded), query, body."""

    __slots__ = (
        "_body",
        "_query",
        "_read",
        "caller",
        "context",
        "headers",
        "method",
        "names",
        "path",
        "raw_path",
        "scheme",
    )

    def __init__(
        self,
        context: AdminContext,
        method: str,
        path: str,
        raw_path: str,
        query: bytes,
        names: Mapping[str, str],
        headers: Mapping[str, str],
        body: Callable[[], Awaitable[bytes]],
        caller: Caller = UNAUTHENTICATED,
        scheme: str = "http",
    ) -> None:
        self.context = context
        self.caller = caller
        self.method = method
        self.path = path
        self.raw_path = raw_path
        """As it was sent, not decoded."""
        self.names = names
        self.headers = headers
        self.scheme = scheme
        """`http` or `https`."""
        self._query = query
        self._body = body
        self._read: bytes | None = None

    @property
    def query(self) -> dict[str, str]:
        """Query parameters. As in Pulsar, the first one of a name counts."""
        return dict(reversed(parse_qsl(self.query_text, keep_blank_values=True)))

    @property
    def query_text(self) -> str:
        """As it was sent."""
        return self._query.decode("latin-1")

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean query parameter."""
        value = self.query.get(name)
        return default if value is None else value.strip().lower() in _TRUE

    async def json(self) -> Json:
        """The body; None when there is none. Raises: Refusal: it is not JSON."""
        data = await self.body()
        if not data.strip():
            return None
        values = sum(map(data.count, _SEPARATORS))
        if values > JSON_VALUES_MAX:
            raise Refusal(413, f"The body holds more than {JSON_VALUES_MAX} values")
        try:
            value = json.loads(data, parse_constant=_no_number, parse_float=_finite)
            if b"\\ud" in data.lower():  # half a character is valid JSON, but cannot be stored
                json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise Refusal(400, f"The body is not JSON: {error}") from None
        return value

    async def json_object(self) -> dict[str, Any] | None:
        """A body that must be an object, null or nothing. Raises: Refusal."""
        value = await self.json()
        if value is not None and not isinstance(value, dict):
            raise Refusal(400, "The body must be a JSON object")
        return value

    async def json_int(self) -> int:
        """A body that must be a whole number, as `number_of` takes it. Raises: Refusal."""
        number = number_of(await self.json())
        if number is None:
            raise Refusal(400, "The body must be a whole number")
        return number

    async def body(self) -> bytes:
        """The raw body."""
        if self._read is None:
            self._read = await self._body()
        return self._read

    @property
    def namespace_name(self) -> str:
        """`tenant/namespace` of the path."""
        return f"{self.names['tenant']}/{self.names['namespace']}"

    @property
    def topic(self) -> TopicName:
        """The topic of the path. Raises: BrokerError InvalidTopicName."""
        names = self.names
        domain = names.get("domain", PERSISTENT)
        return TopicName.of(domain, names["tenant"], names["namespace"], names["topic"])

    @property
    def domain(self) -> str:
        """persistent or non-persistent."""
        domain = self.names["domain"]
        assert domain in (PERSISTENT, NON_PERSISTENT)
        return domain


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large")
    return value
