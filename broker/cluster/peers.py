"""Administrative requests to the other brokers of the cluster, over HTTP, as clients make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from protocol.errors import ServiceNotReady
from web.client import CallFailed, fetch

if TYPE_CHECKING:
    import ssl

    from broker.broker_address import BrokerAddress
    from broker.cluster.bundles import Bundle
    from web.client import Answer

_REDIRECTS_MAX: Final = 5
_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of an administrative request to another broker: statistics of a topic with 20,000 consumers."""


@final
class Peers:
    """See the module docstring."""

    def __init__(
        self, this_broker: BrokerAddress, timeout_seconds: float, tls: ssl.SSLContext | None
    ) -> None:
        """`tls`: brokers are reached by https; None: by http."""
        self._this_broker = this_broker
        self._timeout_seconds = timeout_seconds
        self._tls = tls
        self._scheme = "http" if tls is None else "https"

    async def ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """The status and body of the answer by the broker that the request belongs to. This broker
        is asked first, and sends the request on like any other.

        Raises: ServiceNotReady.
        """
        url = f"{self._this_broker.web_url(self._scheme)}{path}"
        for _attempt in range(_REDIRECTS_MAX):
            answer = await self._fetch(method, url, body)
            if answer.status != 307:
                return answer.status, answer.body
            url = answer.location
        raise ServiceNotReady(f"{method} {path} is sent around between brokers; try again")

    async def change_bundle(self, owner: BrokerAddress, bundle: Bundle, what: str) -> None:
        """Have another broker do something with its bundle. Raises: ServiceNotReady."""
        url = f"{owner.web_url(self._scheme)}/admin/v2/namespaces/{bundle.name}/{what}"
        answer = await self._fetch("PUT", url, b"")
        if answer.status >= 300 and answer.status != 307:  # 307: it owns the bundle no more
            raise ServiceNotReady(f"The owner of {bundle.name} answered {answer.status} to {what}")

    async def _fetch(self, method: str, url: str, body: bytes) -> Answer:
        try:
            return await fetch(
                method,
                url,
                self._timeout_seconds,
                body=body,
                body_bytes_max=_ANSWER_BYTES_MAX,
                tls=self._tls,
            )
        except CallFailed as error:
            raise ServiceNotReady(f"Another broker does not answer: {error}") from None
