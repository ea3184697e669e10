"""Finds the broker that owns the source as a client would, by look-ups and redirects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.peers.broker_client import ANONYMOUS
from broker.peers.owner_connection import OwnerConnection
from protocol import client
from protocol import pulsar_api_pb2 as pb
from protocol.errors import BrokerError, ServiceNotReady

if TYPE_CHECKING:
    import trio

    from broker.peers.broker_client import BrokerClient
    from broker.peers.ownership import Ownership
    from protocol.frames import ParsedFrame
    from protocol.topic_name import TopicName

HOPS_MAX: Final = 20
_Response = pb.CommandLookupTopicResponse


async def _ignore(_frames: list[ParsedFrame]) -> None:
    """A broker that is asked for an owner has nothing else to say."""


@final
class OwnerSearch:
    """See the module docstring. `ownership` is this broker's view, which is asked first."""

    def __init__(self, ownership: Ownership, broker_client: BrokerClient = ANONYMOUS) -> None:
        """`broker_client`: how other brokers are reached."""
        self._ownership = ownership
        self.broker_client = broker_client

    async def find(self, topic: TopicName, nursery: trio.Nursery) -> str:
        """The service URL of the owner.

        Raises: BrokerError: there is none now. LinkLost.
        """
        found = await self._ownership.owner_of(topic)
        address, is_redirect = found.address, found.is_redirect
        authoritative = found.authoritative
        is_secure = self.broker_client.is_secure
        url = address.broker_service_url_tls if is_secure else address.broker_service_url
        for _ in range(HOPS_MAX):
            if not is_redirect:
                return url
            answer = await self._ask(url, topic, nursery, authoritative=authoritative)
            url = answer.brokerServiceUrlTls if is_secure else answer.brokerServiceUrl
            authoritative = answer.authoritative
            is_redirect = answer.response == _Response.Redirect
        raise ServiceNotReady(f"no broker says that it owns {topic.full}")

    async def _ask(
        self, url: str, topic: TopicName, nursery: trio.Nursery, *, authoritative: bool
    ) -> pb.CommandLookupTopicResponse:
        connection = await OwnerConnection.open(url, nursery, _ignore, self.broker_client)
        try:
            command = await connection.ask(
                lambda request_id: client.lookup(
                    topic.full, request_id, authoritative=authoritative
                )
            )
        finally:
            connection.close("the owner is known")
        answer = command.lookupTopicResponse
        if answer.response == _Response.Failed:
            raise BrokerError(answer.error, answer.message)
        return answer
