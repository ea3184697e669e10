"""The JSON records by which brokers of a cluster know each other. Pure.

Paths and fields are those of Pulsar 4.0.8 with ModularLoadManagerImpl; docs/formats/ownership.md
shows the records of a real cluster. Pulsar's readers skip fields that they do not know, so one is
added: `velaSession` names the session that wrote an ephemeral node, because a node that names this
broker may be of a former session that is about to end.

Another process wrote the records that are read: fields that are missing or of a wrong type count as
zero or empty, numbers are bounded, bundles without a proper name are left out, and a record without
the addresses of its broker counts as damaged (None).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeGuard, final

from broker.cluster.bundles import parse_bundle
from broker.peers.broker_address import BrokerAddress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from broker.cluster.bundles import Bundle

Json = dict[str, Any]

BROKERS_PATH: Final = "/loadbalance/brokers"
LEADER_PATH: Final = "/loadbalance/leader"
BUNDLE_DATA_PATH: Final = "/loadbalance/bundle-data"
BROKER_AVERAGES_PATH: Final = "/loadbalance/broker-time-average"
OWNERS_PATH: Final = "/namespace"

_SESSION: Final = "velaSession"
LOAD_MANAGER: Final = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
_SHARE_MAX: Final = 1e6
_NUMBER_MAX: Final = 1e18
"""Larger numbers count as this one, so that sums of them stay numbers."""


def owner_path(bundle: Bundle) -> str:
    """The ephemeral node of the broker that owns the bundle."""
    return f"{OWNERS_PATH}/{bundle.name}"


def encode(record: Json) -> bytes:
    """As stored."""
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode()


def decode(data: bytes) -> Json | None:
    """A JSON object; None: it is none."""
    try:
        record = json.loads(data.decode())
        if b"\\ud" in data.lower():  # half a character is valid JSON, and cannot be written again
            encode({"": record})
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


# --- addresses --------------------------------------------------------------------------------


def broker_id_of(web_service_url: str) -> str:
    """Pulsar's name of a broker: host and port of its web service."""
    return web_service_url.partition("://")[2]


def _listeners(address: BrokerAddress) -> dict[str, Json]:
    plain, tls = address.advertised_listeners, address.advertised_listeners_tls
    return {
        name: _given(brokerServiceUrl=plain.get(name), brokerServiceUrlTls=tls.get(name))
        for name in sorted(plain.keys() | tls.keys())
    }


def _given(**urls: str | None) -> Json:
    """The fields that are present: Pulsar leaves out those that are null."""
    return {name: url for name, url in urls.items() if url}


def _is_url(value: object) -> TypeGuard[str]:
    """Whether it can be passed on to clients, also in a header of HTTP."""
    return isinstance(value, str) and "://" in value and value.isascii() and value.isprintable()


def _address(record: Json, native: str, web: str) -> BrokerAddress | None:
    """From the fields of these names, and those of the same names with `Tls`."""
    native_url, web_url = _url(record, native), _url(record, web)
    native_url_tls, web_url_tls = _url(record, f"{native}Tls"), _url(record, f"{web}Tls")
    if not (native_url or native_url_tls) or not (web_url or web_url_tls):
        return None
    listeners = record.get("advertisedListeners")
    named = listeners if isinstance(listeners, dict) else {}
    return BrokerAddress(
        native_url,
        web_url,
        _urls(named, "brokerServiceUrl"),
        native_url_tls,
        web_url_tls,
        _urls(named, "brokerServiceUrlTls"),
    )


def _url(record: Json, name: str) -> str:
    url = record.get(name)
    return url if _is_url(url) else ""


def _urls(listeners: Json, name: str) -> dict[str, str]:
    return {
        listener: url
        for listener, each in listeners.items()
        if isinstance(each, dict) and (url := _url(each, name))
    }


# --- owners (NamespaceEphemeralData) and the leader (LeaderBroker) ----------------------------


@final
@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a bundle, as its node says."""

    address: BrokerAddress
    is_disabled: bool = False
    """The bundle is being given up."""
    session: str = ""
    """The session that made the node; only Vela's brokers name it."""

    @property
    def record(self) -> Json:
        """As stored."""
        return {
            **_given(
                nativeUrl=self.address.broker_service_url,
                nativeUrlTls=self.address.broker_service_url_tls,
                httpUrl=self.address.web_service_url,
                httpUrlTls=self.address.web_service_url_tls,
            ),
            "disabled": self.is_disabled,
            "advertisedListeners": _listeners(self.address),
            _SESSION: self.session,
        }

    @classmethod
    def parse(cls, data: bytes) -> Owner | None:
        """From a stored record; None: it is damaged."""
        record = decode(data) or {}
        address = _address(record, "nativeUrl", "httpUrl")
        if address is None:
            return None
        return cls(address, record.get("disabled") is True, _text(record, _SESSION))


@final
@dataclass(frozen=True, slots=True)
class Leader:
    """The broker that assigns bundles."""

    broker_id: str
    web_service_url: str
    session: str = ""

    @property
    def record(self) -> Json:
        """As stored."""
        return {
            "brokerId": self.broker_id,
            "serviceUrl": self.web_service_url,
            _SESSION: self.session,
        }

    @classmethod
    def parse(cls, data: bytes) -> Leader | None:
        """From a stored record; None: it is damaged. Brokers before 3.3 name only their URL."""
        record = decode(data) or {}
        url = _text(record, "serviceUrl")
        broker_id = _text(record, "brokerId") or broker_id_of(url)
        return cls(broker_id, url, _text(record, _SESSION)) if url and broker_id else None


# --- load (LocalBrokerData) -------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages and bytes per second."""

    msg_rate_in: float = 0.0
    msg_rate_out: float = 0.0
    throughput_in: float = 0.0
    throughput_out: float = 0.0

    @property
    def msg_rate(self) -> float:
        """Messages per second, both ways."""
        return self.msg_rate_in + self.msg_rate_out

    @property
    def throughput(self) -> float:
        """Bytes per second, both ways."""
        return self.throughput_in + self.throughput_out

    @property
    def record(self) -> Json:
        """The four fields that several records share."""
        return {
            "msgRateIn": self.msg_rate_in,
            "msgThroughputIn": self.throughput_in,
            "msgRateOut": self.msg_rate_out,
            "msgThroughputOut": self.throughput_out,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Traffic:
        """From a record with the four fields."""
        return cls(
            number_of(record, "msgRateIn"),
            number_of(record, "msgRateOut"),
            number_of(record, "msgThroughputIn"),
            number_of(record, "msgThroughputOut"),
        )

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.msg_rate_in + other.msg_rate_in,
            self.msg_rate_out + other.msg_rate_out,
            self.throughput_in + other.throughput_in,
            self.throughput_out + other.throughput_out,
        )


NO_TRAFFIC: Final = Traffic()


@final
@dataclass(frozen=True, slots=True)
class BundleLoad:
    """The topics and the traffic of one bundle now."""

    traffic: Traffic = NO_TRAFFIC
    topics: int = 0
    producers: int = 0
    consumers: int = 0

    def __add__(self, other: BundleLoad) -> BundleLoad:
        return BundleLoad(
            self.traffic + other.traffic,
            self.topics + other.topics,
            self.producers + other.producers,
            self.consumers + other.consumers,
        )

    @property
    def record(self) -> Json:
        """NamespaceBundleStats."""
        return {
            **self.traffic.record,
            "consumerCount": self.consumers,
            "producerCount": self.producers,
            "topics": self.topics,
            "cacheSize": 0,
        }

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> BundleLoad:
        """From NamespaceBundleStats."""
        return cls(
            Traffic.of(record),
            int(number_of(record, "topics")),
            int(number_of(record, "producerCount")),
            int(number_of(record, "consumerCount")),
        )


@final
@dataclass(frozen=True, slots=True)
class Usage:
    """How much of a resource is used, both in the same unit."""

    usage: float = 0.0
    limit: float = 0.0

    @property
    def share(self) -> float:
        """0 to 1 and above; 0 where the limit is unknown."""
        return min(self.usage / self.limit, _SHARE_MAX) if self.limit > 0 else 0.0

    @property
    def record(self) -> Json:
        """ResourceUsage."""
        return {"usage": self.usage, "limit": self.limit}

    @classmethod
    def of(cls, record: object) -> Usage:
        """From ResourceUsage."""
        if not isinstance(record, dict):
            return cls()
        return cls(number_of(record, "usage"), number_of(record, "limit"))


UNKNOWN: Final = Usage(0.0, -1000.0)
"""As Pulsar writes a resource whose limit is unknown."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """A broker's registration, with its load."""

    address: BrokerAddress
    cpu: Usage = UNKNOWN
    """Percent of one core."""
    memory: Usage = UNKNOWN
    """Megabytes. Pulsar does not weigh it by default."""
    bandwidth_in: Usage = UNKNOWN
    """Kilobits per second."""
    bandwidth_out: Usage = UNKNOWN
    bundles: Mapping[str, BundleLoad] = field(default_factory=dict)
    """Owned bundles by name."""
    updated_ms: int = 0
    started_ms: int = 0
    version: str = ""
    session: str = ""
    load_manager: str = LOAD_MANAGER
    """The Java class whose records and rules the broker follows."""

    @property
    def broker_id(self) -> str:
        """Pulsar's name of the broker."""
        return self.address.broker_id

    @property
    def usage(self) -> float:
        """The largest share of a resource that is used, by Pulsar's weights: 1 for processors and
        network, 0 for memory."""
        return max(self.cpu.share, self.bandwidth_in.share, self.bandwidth_out.share)

    @property
    def traffic(self) -> Traffic:
        """The traffic of all its bundles."""
        return sum((load.traffic for load in self.bundles.values()), NO_TRAFFIC)

    @property
    def topics(self) -> int:
        """The number of its topics."""
        return sum(load.topics for load in self.bundles.values())

    @property
    def record(self) -> Json:
        """LocalBrokerData."""
        traffic = self.traffic
        loads = self.bundles
        return {
            **_given(
                webServiceUrl=self.address.web_service_url,
                webServiceUrlTls=self.address.web_service_url_tls,
                pulsarServiceUrl=self.address.broker_service_url,
                pulsarServiceUrlTls=self.address.broker_service_url_tls,
            ),
            "persistentTopicsEnabled": True,
            "nonPersistentTopicsEnabled": True,
            "cpu": self.cpu.record,
            "memory": self.memory.record,
            "directMemory": UNKNOWN.record,
            "bandwidthIn": self.bandwidth_in.record,
            "bandwidthOut": self.bandwidth_out.record,
            **traffic.record,
            "lastUpdate": self.updated_ms,
            "lastStats": {name: load.record for name, load in loads.items()},
            "numTopics": self.topics,
            "numBundles": len(loads),
            "numConsumers": sum(load.consumers for load in loads.values()),
            "numProducers": sum(load.producers for load in loads.values()),
            "bundles": sorted(loads),
            "lastBundleGains": [],
            "lastBundleLosses": [],
            "brokerVersionString": self.version,
            "protocols": {},
            "advertisedListeners": _listeners(self.address),
            "loadManagerClassName": LOAD_MANAGER,
            "startTimestamp": self.started_ms,
            "maxResourceUsage": self.usage,
            "loadReportType": "LocalBrokerData",
            _SESSION: self.session,
        }

    @classmethod
    def parse(cls, data: bytes) -> BrokerReport | None:
        """From a stored record; None: it is damaged."""
        record = decode(data) or {}
        address = _address(record, "pulsarServiceUrl", "webServiceUrl")
        if address is None:
            return None
        names = record.get("bundles")
        stats = record.get("lastStats")
        loads = {
            name: BundleLoad.of(each)
            for name, each in (stats if isinstance(stats, dict) else {}).items()
            if isinstance(each, dict) and parse_bundle(name) is not None
        }
        for name in names if isinstance(names, list) else []:
            if isinstance(name, str) and parse_bundle(name) is not None:
                loads.setdefault(name, BundleLoad())
        return cls(
            address=address,
            cpu=Usage.of(record.get("cpu")),
            memory=Usage.of(record.get("memory")),
            bandwidth_in=Usage.of(record.get("bandwidthIn")),
            bandwidth_out=Usage.of(record.get("bandwidthOut")),
            bundles=loads,
            updated_ms=int(number_of(record, "lastUpdate")),
            started_ms=int(number_of(record, "startTimestamp")),
            version=_text(record, "brokerVersionString"),
            session=_text(record, _SESSION),
            load_manager=_text(record, "loadManagerClassName") or LOAD_MANAGER,
        )


def number_of(record: Mapping[str, Any], name: str) -> float:
    """The number in the field of this name, bounded; 0 if it is none."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:  # NaN
        return 0.0
    return float(min(max(value, -_NUMBER_MAX), _NUMBER_MAX))


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""
