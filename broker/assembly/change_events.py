"""Connects this broker to the logs that hold the policies of topics.

A log that this broker owns is reached without a port, by a connection in the process, on which
everything is allowed. It needs neither TLS nor credentials of brokers.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from broker.doors.pulsar.table import BrokerCommands
from broker.net.session import AnySession, Session
from broker.peers.broker_client import ANONYMOUS
from broker.peers.owner_connection import OwnerConnection
from broker.peers.owner_search import OwnerSearch
from broker.tenancy.change_events.change_events import ChangeEvents
from broker.tenancy.namespaces.topic_policies import DISABLED, NoPolicyLog
from runtime.transport import StreamTransport
from security.caller import THIS_BROKER

if TYPE_CHECKING:
    from broker.peers.broker_client import BrokerClient
    from broker.tenancy.change_events.log_part import Take
    from broker.topics.service import BrokerService
    from protocol.topic_name import TopicName

PEER: Final = "127.0.0.1:0"

log = structlog.get_logger()


@final
class LogOwners:
    """See `namespace_log.Owners`."""

    def __init__(self, service: BrokerService, broker_client: BrokerClient) -> None:
        self._service = service
        self._client = broker_client
        self._commands = BrokerCommands(service)

    async def connect(self, topic: TopicName, nursery: trio.Nursery, take: Take) -> OwnerConnection:
        """See there."""
        ownership = self._service.ownership
        if ownership.serves(topic):
            return await self._connect_here(nursery, take)
        url = await OwnerSearch(ownership, self._client).find(topic, nursery)
        if ownership.serves(topic):
            return await self._connect_here(nursery, take)
        return await OwnerConnection.open(url, nursery, take, self._client)

    async def _connect_here(self, nursery: trio.Nursery, take: Take) -> OwnerConnection:
        ours, theirs = (trio.SocketStream(trio.socket.from_stdlib_socket(each)) for each in _pair())
        nursery.start_soon(self._serve, theirs)
        connection = OwnerConnection(ours, ours, take)
        await connection.begin("this broker", nursery)
        return connection

    async def _serve(self, stream: trio.SocketStream) -> None:
        transport = StreamTransport(stream, PEER)
        session: AnySession = Session(self._service.connections, self._commands, transport)
        session.caller = THIS_BROKER
        try:
            await session.run()
        except Exception as error:
            log.error("session failed", peer="this broker", exc_info=error)
        finally:
            await trio.aclose_forcefully(stream)


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    return ours, theirs


async def start_policy_log(
    nursery: trio.Nursery, service: BrokerService, broker_client: BrokerClient = ANONYMOUS
) -> None:
    """Read and write the policies of topics, if the configuration says so. It is to be stopped
    before topics are closed."""
    config = service.config
    if not (config.topicLevelPoliciesEnabled and config.systemTopicEnabled):
        service.namespaces.policy_log = NoPolicyLog(DISABLED)
        return
    owners = LogOwners(service, broker_client)
    service.namespaces.policy_log = changes = ChangeEvents(
        owners, config.clusterName, service.clock
    )
    await nursery.start(changes.run)
