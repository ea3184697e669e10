"""Scenarios of what stock clients may do with each kind of credential and of grant.

A scenario is a list of attempts to subscribe and publish, each with a credential, on a topic of its
own. What it needs on the server is made first, by HTTP as a super user. The outcome of an attempt
is the client's error for both, or the payload that came back.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

import pulsar

from compat_tests.authorized_servers import ADMIN, PROXY, SUPER, token
from compat_tests.loopback_issuer import AUDIENCE

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.loopback_issuer import LoopbackIssuer
    from compat_tests.oracle.comparison import Trace
    from compat_tests.oracle.server_process import ServerProcess

TENANT: Final = "clients"
PASSWORD: Final = "open sesame"
LET_IN_SECONDS: Final = 30
REFUSED_SECONDS: Final = 2
"""Some clients try again until the end of this time."""
BOTH: Final = ["produce", "consume"]
ALL, PRODUCE, CONSUME, NOTHING, NOT_CONNECT = "all", "produce", "consume", "nothing", "not connect"
"""What a client may do."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One client: subscribes, publishes, and receives if both were allowed."""

    label: str
    may: str
    """What must come out on any server, by any client."""
    method: str = "token"
    """`token`, `basic`, `tls`, `oauth2` or `none`."""
    credential: str = ""
    """A token; user:password; certificate and key, with a comma; the path of a file."""
    issuer: str = ""
    url: str
    trusted: str
    topic: str
    subscription: str = "s"
    seconds: int = LET_IN_SECONDS


@dataclass
class Place:
    """One server, one client and one scenario: makes what the attempts need."""

    server: ServerProcess
    tls_url: str
    files: CredentialFiles
    client: str
    name: str
    """Of the client and the scenario, and the mark of a repetition."""
    attempts: list[Attempt] = field(default_factory=list)

    @property
    def namespace(self) -> str:
        """Of this scenario alone."""
        return f"{TENANT}/{self.name}"

    def topic(self, name: str) -> str:
        """In that namespace."""
        return f"persistent://{self.namespace}/{name}"

    def ask(self, method: str, path: str, body: object = None) -> None:
        """An administrator's request, which must succeed."""
        status, answer = self.server.http(method, f"/admin/v2/{path}", body)
        assert status < 300, (method, path, status, answer)

    def grant(self, role: str, actions: list[str], topic: str = "") -> None:
        """On the namespace, or on a topic of it."""
        place = f"persistent/{self.namespace}/{topic}" if topic else f"namespaces/{self.namespace}"
        self.ask("POST", f"{place}/permissions/{role}", actions)

    def tries(
        self, label: str, may: str, credential: str, *, method: str = "token", **more: Any
    ) -> None:
        """One more attempt, by one who may do this."""
        topic = self.topic(more.pop("topic", f"t{len(self.attempts)}"))
        tls = method == "tls" or more.pop("tls", False)
        self.attempts.append(
            Attempt(
                label=label,
                may=may,
                method=method,
                credential=credential,
                issuer=self.files.issuer.url,
                url=self.tls_url if tls else self.server.service_url,
                trusted=self.files.authority,
                topic=topic,
                seconds=REFUSED_SECONDS if may == NOT_CONNECT else LET_IN_SECONDS,
                **more,
            )
        )


@dataclass(frozen=True)
class CredentialFiles:
    """What is shown, for both servers."""

    issuer: LoopbackIssuer
    foreign_issuer: LoopbackIssuer
    authority: str
    """Path of the certificate that signed those of the server and of `certificate`."""
    certificate: tuple[str, str]
    """Of `alice`, with its key."""
    foreign_certificate: tuple[str, str]
    oauth2: str
    """Path of the credentials of `alice` at the issuer."""
    wrong_oauth2: str


Make = Callable[[Place], None]
SCENARIOS: Final[dict[str, Make]] = {}


def _scenario(name: str) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        assert name not in SCENARIOS
        SCENARIOS[name] = make
        return make

    return register


# --- providers --------------------------------------------------------------------------


@_scenario("provider-basic")
def _basic(place: Place) -> None:
    place.grant("alice", BOTH)
    place.tries("right", ALL, f"alice:{PASSWORD}", method="basic")
    place.tries("over TLS", ALL, f"alice:{PASSWORD}", method="basic", tls=True)
    place.tries("wrong password", NOT_CONNECT, "alice:wrong", method="basic")
    place.tries("without a grant", NOTHING, f"bob:{PASSWORD}", method="basic")


@_scenario("provider-oauth2")
def _oauth2(place: Place) -> None:
    files = place.files
    place.grant("alice", BOTH)
    place.tries("client credentials", ALL, files.oauth2, method="oauth2")
    place.tries("the issuer refuses", NOT_CONNECT, files.wrong_oauth2, method="oauth2")
    place.tries("its token", ALL, files.issuer.token("alice"))
    place.tries("another audience", NOT_CONNECT, files.issuer.token("alice", aud="others"))
    place.tries("expired", NOT_CONNECT, files.issuer.token("alice", exp=1))
    place.tries("a foreign issuer", NOT_CONNECT, files.foreign_issuer.token("alice"))
    forged = files.foreign_issuer.token("alice", iss=files.issuer.url)
    place.tries("a foreign key", NOT_CONNECT, forged)


@_scenario("provider-tls")
def _tls(place: Place) -> None:
    place.grant("alice", BOTH)
    place.tries("right", ALL, ",".join(place.files.certificate), method="tls")
    if place.client != "java":  # Pulsar tells it whom it trusts (docs/security.md)
        foreign = ",".join(place.files.foreign_certificate)
        place.tries("foreign certificate", NOT_CONNECT, foreign, method="tls")
    place.tries("a token instead", ALL, token("alice"), tls=True)
    place.tries("nothing", NOT_CONNECT, "", method="none", tls=True)


# --- grants -----------------------------------------------------------------------------


@_scenario("grant-namespace")
def _on_namespace(place: Place) -> None:
    place.grant("writer", ["produce"])
    place.grant("reader", ["consume"])
    place.grant("both", BOTH)
    for role, may in (
        ("writer", PRODUCE),
        ("reader", CONSUME),
        ("both", ALL),
        ("nobody", NOTHING),
    ):
        place.tries(role, may, token(role))


@_scenario("grant-topic")
def _on_topic(place: Place) -> None:
    place.ask("PUT", f"persistent/{place.namespace}/own")
    place.ask("PUT", f"persistent/{place.namespace}/parts/partitions", 2)
    for topic in ("own", "parts"):
        place.grant("alice", BOTH, topic)
    place.tries("its topic", ALL, token("alice"), topic="own")
    place.tries("its partitioned topic", ALL, token("alice"), topic="parts")
    place.tries("another topic", NOTHING, token("alice"), topic="other")
    place.tries("another role", NOTHING, token("nobody"), topic="own")


@_scenario("grant-subscription")
def _on_subscription(place: Place) -> None:
    place.grant("alice", BOTH)
    place.grant("bob", BOTH)
    place.ask("POST", f"namespaces/{place.namespace}/permissions/subscription/hers", ["alice"])
    place.tries("hers", ALL, token("alice"), subscription="hers")
    place.tries("not his", PRODUCE, token("bob"), subscription="hers")
    place.tries("of nobody", ALL, token("bob"), subscription="any")


@_scenario("grant-subscription-prefix")
def _with_prefix(place: Place) -> None:
    place.grant("alice", BOTH)
    place.ask("POST", f"namespaces/{place.namespace}/subscriptionAuthMode", "Prefix")
    place.tries("with the role", ALL, token("alice"), subscription="alice-1")
    place.tries("without", PRODUCE, token("alice"), subscription="other")


@_scenario("grant-wildcard")
def _with_wildcard(place: Place) -> None:
    place.grant("app-*", BOTH)
    place.grant("*-job", ["produce"])
    for role, may in (
        ("app-1", ALL),
        ("app", NOTHING),
        ("night-job", PRODUCE),
        ("job", NOTHING),
    ):
        place.tries(role, may, token(role))


@_scenario("grant-revoked")
def _revoked(place: Place) -> None:
    for role in ("alice", "bob"):
        place.grant(role, BOTH)
        place.ask("DELETE", f"namespaces/{place.namespace}/permissions/{role}")
    place.grant("alice", ["produce"])
    place.tries("granted again", PRODUCE, token("alice"))
    place.tries("not granted again", NOTHING, token("bob"))


@_scenario("roles")
def _roles(place: Place) -> None:
    place.grant(PROXY, BOTH)
    place.tries("super user", ALL, token(SUPER))
    place.tries("administrator of the tenant", ALL, token(ADMIN))
    place.tries("proxy that names no client", NOT_CONNECT, token(PROXY))
    place.tries("nobody", NOTHING, token("nobody"))


def make_tenant(server: ServerProcess) -> None:
    """The tenant of all scenarios."""
    body = {"adminRoles": [ADMIN], "allowedClusters": ["standalone"]}
    status, answer = server.http("PUT", f"/admin/v2/tenants/{TENANT}", body)
    assert status < 300, answer


def prepared(place: Place, scenario: str) -> list[Attempt]:
    """Make the namespace of a scenario, and say what is to be tried."""
    place.ask("PUT", f"namespaces/{place.namespace}")
    SCENARIOS[scenario](place)
    return place.attempts


def check(attempts: list[Attempt], trace: Trace) -> None:
    """Whether the outcomes are what they must be: two servers may be wrong in the same way."""
    for attempt, (label, (subscribed, published, received)) in zip(attempts, trace, strict=True):
        assert label == attempt.label
        seen = (subscribed is None, published is None)
        wanted = (attempt.may in (ALL, CONSUME), attempt.may in (ALL, PRODUCE))
        assert seen == wanted, (label, subscribed, published)
        assert received == ("hello" if attempt.may == ALL else None), label


def write_attempts(attempts: list[Attempt], directory: Path) -> None:
    """For programs of clients: a line of JSON for each."""
    lines = [json.dumps(asdict(each)) for each in attempts]
    (directory / "attempts.txt").write_text("\n".join(lines))


# --- the Python client ------------------------------------------------------------------


def play_python(attempts: list[Attempt], log: Path) -> Trace:
    """All at once."""
    with ThreadPoolExecutor(len(attempts)) as pool:
        outcomes = list(pool.map(lambda each: _outcome(each, log), attempts))
    return [[each.label, outcome] for each, outcome in zip(attempts, outcomes, strict=True)]


def _outcome(attempt: Attempt, log: Path) -> list[Any]:
    more = {} if attempt.method == "none" else {"authentication": _authentication(attempt)}
    client = pulsar.Client(
        attempt.url,
        operation_timeout_seconds=attempt.seconds,
        tls_trust_certs_file_path=attempt.trusted,
        tls_validate_hostname=True,
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Warn, str(log)),
        **more,
    )
    subscribed = published = received = consumer = None
    try:
        try:
            consumer = client.subscribe(attempt.topic, attempt.subscription)
        except pulsar.PulsarException as refused:
            subscribed = type(refused).__name__
        try:
            client.create_producer(attempt.topic).send(b"hello")
        except pulsar.PulsarException as refused:
            published = type(refused).__name__
        if consumer is not None and published is None:
            received = consumer.receive(10_000).data().decode()
        return [subscribed, published, received]
    finally:
        client.close()


def _authentication(attempt: Attempt) -> object:
    credential = attempt.credential
    if attempt.method == "token":
        return pulsar.AuthenticationToken(credential)
    if attempt.method == "basic":
        user, _, password = credential.partition(":")
        return pulsar.AuthenticationBasic(user, password)
    if attempt.method == "tls":
        return pulsar.AuthenticationTLS(*credential.split(","))
    return pulsar.AuthenticationOauth2(
        json.dumps(
            {
                "type": "client_credentials",
                "issuer_url": attempt.issuer,
                "private_key": f"file://{credential}",
                "audience": AUDIENCE,
            }
        )
    )
