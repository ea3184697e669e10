"""Administrative requests to the other brokers of the cluster, over HTTP, as clients make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from protocol.errors import ServiceNotReady
from security.authentication.identity import CredentialUnreadable
from security.authentication.own_credentials import PLUGIN_KEY
from web.client import CallFailed, fetch

if TYPE_CHECKING:
    from broker.cluster.bundles import Bundle
    from broker.peers.broker_address import BrokerAddress
    from broker.peers.broker_client import BrokerClient
    from web.client import Answer

_REDIRECTS_MAX: Final = 5
_UNAUTHORIZED: Final = 401
_ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
"""The size of an answer by another broker: statistics of a topic with 20,000 consumers."""


@final
class Peers:
    """See the module docstring."""

    def __init__(
        self, this_broker: BrokerAddress, timeout_seconds: float, client: BrokerClient
    ) -> None:
        self._this_broker = this_broker
        self._timeout_seconds = timeout_seconds
        self._client = client

    async def ask(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """The status and body of the answer by the broker that the request belongs to. This broker
        is asked first, and sends the request on like any other.

        Raises: ServiceNotReady.
        """
        url = f"{self._this_broker.web_url(self._client.scheme)}{path}"
        for _attempt in range(_REDIRECTS_MAX):
            answer = await self._fetch(method, url, body)
            if answer.status != 307:
                return answer.status, answer.body
            url = answer.location
        raise ServiceNotReady(f"{method} {path} is sent around between brokers; try again")

    async def change_bundle(self, owner: BrokerAddress, bundle: Bundle, what: str) -> None:
        """Have another broker do something with its bundle. Raises: ServiceNotReady."""
        url = f"{owner.web_url(self._client.scheme)}/admin/v2/namespaces/{bundle.name}/{what}"
        answer = await self._fetch("PUT", url, b"")
        if answer.status >= 300 and answer.status != 307:  # 307: it owns the bundle no more
            raise ServiceNotReady(f"The owner of {bundle.name} answered {answer.status} to {what}")

    async def _fetch(self, method: str, url: str, body: bytes) -> Answer:
        client = self._client
        if not url.startswith(f"{client.scheme}://"):
            raise ServiceNotReady(f"Another broker is not reached by {client.scheme}, but at {url}")
        try:
            answer = await fetch(
                method,
                url,
                self._timeout_seconds,
                body=body,
                body_bytes_max=_ANSWER_BYTES_MAX,
                tls=await client.context(),
                headers=await client.headers(),
            )
        except CredentialUnreadable as error:
            raise ServiceNotReady(str(error)) from None
        except CallFailed as error:
            raise ServiceNotReady(f"Another broker does not answer: {error}") from None
        if answer.status == _UNAUTHORIZED:
            raise ServiceNotReady(
                f"Another broker does not accept the credentials of this one (401 to {method} "
                f"{url}): its role must be a super user of all brokers, see {PLUGIN_KEY}"
            )
        return answer
