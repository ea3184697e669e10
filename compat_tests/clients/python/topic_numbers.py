"""How many topics a namespace may have: which ones count, who is refused, and with what
words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from compat_tests.clients.admin_requests import AdminRequests
from compat_tests.clients.python.policies_in_use import until
from compat_tests.clients.python.scenario import Stage, scenario
from compat_tests.clients.python.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Sequence

BY_THEMSELVES: Final = {
    "allowAutoTopicCreation": True,
    "topicType": "partitioned",
    "defaultNumPartitions": 2,
}


@scenario("topics-of-a-namespace")
def topics_of_a_namespace(stage: Stage) -> None:
    """Made by administrators, by clients, with partitions, and by brokers.

    Not shown: a client above the limit where partitioned topics are made by themselves. Real Pulsar
    lets it try again until its timeout; Vela refuses it at once.
    """
    wire = Wire(stage.server.service_url)
    try:
        _Counted(stage, wire, "plain", 3).plain()
        _Counted(stage, wire, "parts", 4).partitioned()
        _Counted(stage, wire, "auto", 4, BY_THEMSELVES).automatic()
        _Counted(stage, wire, "policies", 2).policies()
        _Counted(stage, wire, "late", None).below_what_is_there()
    finally:
        wire.close()


class _Counted:
    """A namespace with a limit from its beginning."""

    def __init__(
        self,
        stage: Stage,
        wire: Wire,
        name: str,
        limit: int | None,
        creation: dict[str, Any] | None = None,
    ) -> None:
        self._stage, self._wire = stage, wire
        self._ask = AdminRequests(stage.server.web_url)
        self._namespace = f"public/{stage.scenario_name}{stage.mark}-{name}"
        given = {"max_topics_per_namespace": limit, "autoTopicCreationOverride": creation}
        self._taken("PUT", f"/admin/v2/namespaces/{self._namespace}", given)
        stage.see(name, limit)

    def plain(self) -> None:
        """Without partitions."""
        self._asked("PUT", "a")
        self._produce("b")
        self._asked("PUT", "p/partitions", 2)
        self._consume("c")
        self._asked("PUT", "a")
        self._refused("x")
        self._produce("a")
        self._asked("DELETE", "a?force=true")
        self._asked("PUT", "in-its-place")
        self._refused("y")
        self._asked("DELETE", "in-its-place")
        self._consume("of-a-reader", durable=False)
        self._topics()

    def partitioned(self) -> None:
        """Each partition counts. Partitions are added above the limit."""
        self._asked("PUT", "p/partitions", 2)
        self._asked("PUT", "q/partitions", 3)
        self._asked("PUT", "r/partitions", 2)
        self._asked("POST", "r/partitions", 3)
        self._produce("r-partition-2")
        self._refused("x")
        self._produce("p-partition-0")
        self._produce("alone-partition-0")
        self._asked("DELETE", "p/partitions?force=true")
        self._asked("PUT", "in-their-place")
        self._produce("alone-partition-1")
        self._topics()

    def automatic(self) -> None:
        """With two partitions each."""
        for name in ("p", "q"):
            self._client_produces(name)
        self._asked("PUT", "a")
        self._asked("DELETE", "p/partitions?force=true")
        self._asked("PUT", "in-their-place")
        self._topics()

    def policies(self) -> None:
        """The topics of brokers do not count."""
        self._asked("PUT", "a")
        path = f"/admin/v2/persistent/{self._namespace}/a/maxProducers"
        self._taken("POST", path, 1)
        self._asked("PUT", "b")
        self._asked("PUT", "c")
        self._produce("__change_events")
        self._produce("__transaction_buffer_snapshot")
        self._topics()

    def below_what_is_there(self) -> None:
        """All that is there stays."""
        for name in ("a", "b", "c"):
            self._asked("PUT", name)
        self._asked("PUT", "p/partitions", 2)
        path = f"/admin/v2/namespaces/{self._namespace}/maxTopicsPerNamespace"
        self._taken("POST", path, 2)
        until(self._stage, "limit", 2, lambda: self._ask("GET", path)[1])
        self._refused("x")
        for name in ("a", "p-partition-1"):
            self._asked("PUT", f"{name}/unload")
            self._produce(name)
        self._asked("POST", "p/partitions", 3)
        self._asked("DELETE", "p/partitions?force=true")
        self._asked("PUT", "still-above")
        for name in ("b", "c"):
            self._asked("DELETE", name)
        self._asked("PUT", "below")
        self._asked("PUT", "above")
        for value in (-1, 0):
            self._stage.see(f"limit {value}", self._ask("POST", path, value))
            self._asked("PUT", f"then-{value}")
        self._topics()

    def _refused(self, name: str) -> None:
        """In every way that there is. Topics that store nothing do not count."""
        self._asked("PUT", name)
        self._asked("PUT", f"{name}/partitions", 1)
        self._produce(name)
        self._consume(name)
        self._consume(name, durable=False)
        self._client_produces(name)
        self._asked("PUT", f"{name}-made", domain="non-persistent")
        self._asked("PUT", f"{name}-parts/partitions", 1, domain="non-persistent")
        self._produce(f"{name}-used", domain="non-persistent")

    def _asked(self, method: str, path: str, body: Any = None, domain: str = "persistent") -> None:
        answer = self._ask(method, f"/admin/v2/{domain}/{self._namespace}/{path}", body)
        self._stage.see(f"{method} {domain} {path}", answer)

    def _taken(self, method: str, path: str, body: Any) -> None:
        status, told = self._ask.raw(method, path, body)
        assert status == 204, (path, status, told)

    def _produce(self, name: str, domain: str = "persistent") -> None:
        self._see(
            f"producer of {domain} {name}", self._wire.keep_producer(self._full(name, domain))
        )

    def _consume(self, name: str, *, durable: bool = True) -> None:
        told = self._wire.keep_consumer(self._full(name), "s", durable=durable)
        self._see(f"{'consumer' if durable else 'reader'} of {name}", told)

    def _client_produces(self, name: str) -> None:
        topic = self._full(name)
        client = self._stage.client
        self._stage.see_error(f"client's {name}", lambda: client.create_producer(topic).close())

    def _topics(self) -> None:
        for kind in ("persistent/{}", "persistent/{}/partitioned", "non-persistent/{}"):
            status, names = self._ask("GET", f"/admin/v2/{kind.format(self._namespace)}")
            assert status == 200, names
            self._see(kind, sorted(names))

    def _full(self, name: str, domain: str = "persistent") -> str:
        return f"{domain}://{self._namespace}/{name}"

    def _see(self, what: str, told: Sequence[str]) -> None:
        self._stage.see(what, [text.replace(self._namespace, "NAMESPACE") for text in told])
