"""The link of a follower to the owner of its source: messages one way, slowest positions the other.

Everything is Pulsar's own protocol, on one connection: a `Carrier` receives new messages, and each
`Share` is a consumer of a broadcast subscription that only acknowledges. So the owner knows nothing
of followers, and its broadcast subscription does what it does for every named consumer: it stores
the position, frees storage by the slowest, and drops a name that does not come back.

When the connection ends, or the source moves, the link looks for the owner again, with pauses that
grow. Consumers of the follower go on meanwhile with what is confirmed.

Two brokers never report for one share. The owner admits one consumer of a name at a time, and after
it was admitted the follower makes sure that it still owns the shadow, before it reports. So a
former follower either is refused, or finds out, or had reported before the next one was admitted.
"""

from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Final, Protocol, final

import structlog
import trio

from broker.managed_ledger.ledger_list import OwnershipLost
from broker.peers.owner_connection import LinkLost, OwnerConnection
from broker.topics.follow.carrier import Carrier
from protocol import pulsar_api_pb2 as pb
from protocol.errors import BrokerError, NotAllowed, ServerError, ServiceNotReady

if TYPE_CHECKING:
    from broker.ground.entry import Entry
    from broker.peers.owner_search import OwnerSearch
    from broker.topics.follow.share import Share
    from protocol.frames import ParsedFrame
    from protocol.position import Position
    from protocol.topic_name import TopicName

RETRY_FIRST_SECONDS: Final = 0.1
RETRY_LAST_SECONDS: Final = 3.0
VELA: Final = "vela"
"""Part of the version of an owner that has broadcast subscriptions. Others would take the report of
a share for the acknowledgement of all consumers."""
_Type = pb.BaseCommand

log = structlog.get_logger()


class Follower(Protocol):
    """The ledger that follows, as the link uses it."""

    async def take(self, entries: list[Entry]) -> None:
        """These entries are confirmed, in order. Some may have been there before.

        Raises: LinkLost, BrokerError.
        """

    async def confirm(self, newest: Position) -> None:
        """Everything up to this entry is confirmed. Raises: LinkLost, BrokerError."""

    async def check_owner(self) -> None:
        """Raises: OwnershipLost: another broker has opened the shadow. MetadataUnavailable."""

    def give_up(self, reason: str) -> None:
        """The shadow cannot be served here any more."""


@final
class Link:
    """See the module docstring."""

    def __init__(
        self, shadow: TopicName, source: TopicName, search: OwnerSearch, follower: Follower
    ) -> None:
        self._shadow = shadow
        self._source = source
        self._search = search
        self._follower = follower
        self._shares: dict[str, Share] = {}
        self._consumer_ids = itertools.count(1)
        self._connection: OwnerConnection | None = None
        self._is_live = False
        self._carrier = Carrier(source)
        self._nursery: trio.Nursery | None = None
        self._live = trio.Event()
        self.problem = "the owner of its source has not answered yet"
        """Why there is no link now; empty while there is one."""

    # --- life ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the link until cancelled, or until another broker has opened the shadow."""
        pause_seconds = RETRY_FIRST_SECONDS
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            while True:
                try:
                    await self._serve(nursery)
                except OwnershipLost as lost:
                    self._follower.give_up(lost.message)
                    return
                except LinkLost as ended:
                    problem = str(ended)
                except BrokerError as refused:
                    problem = refused.message
                if self._live.is_set():
                    pause_seconds = RETRY_FIRST_SECONDS
                    self._live = trio.Event()
                if problem != self.problem:
                    self.problem = problem
                    log.warning(
                        "no link to the owner of the source, trying again",
                        topic=self._shadow.full,
                        source=self._source.full,
                        reason=problem,
                    )
                await trio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, RETRY_LAST_SECONDS)

    async def _serve(self, nursery: trio.Nursery) -> None:
        """One connection, from the search for the owner to its end. Never returns.

        Raises: OwnershipLost, BrokerError, LinkLost.
        """
        url = await self._search.find(self._source, nursery)
        connection = await OwnerConnection.open(
            url, nursery, self._take, self._search.broker_client
        )
        self._connection = connection
        try:
            if VELA not in connection.server_version:
                raise NotAllowed(
                    f"{url} owns {self._source.full} and is {connection.server_version}: "
                    "broadcast subscriptions are served by Vela only"
                )
            self._carrier = carrier = Carrier(self._source)
            newest = await carrier.attach(connection, f"vela-follower-{uuid.uuid4().hex}")
            await self._follower.confirm(newest)
            for share in list(self._shares.values()):
                await self._attach(connection, share)
            connection.send(carrier.grant())
            self.problem = ""
            self._is_live = True
            self._live.set()
            self.report()
            await connection.wait_ended()
            raise LinkLost(connection.failure)
        finally:
            self._connection = None
            self._is_live = False
            for share in self._shares.values():
                share.detach()
            connection.close("the follower has left")

    async def wait_live(self) -> None:
        """Return when there is a link."""
        await self._live.wait()

    # --- what the owner sends -----------------------------------------------------------

    async def _take(self, frames: list[ParsedFrame]) -> None:
        carrier, connection = self._carrier, self._connection
        entries: list[Entry] = []
        for frame in frames:
            kind = frame[0].type
            if kind == _Type.MESSAGE:
                entry = carrier.entry_of(frame)
                if entry is not None:
                    entries.append(entry)
            elif kind == _Type.CLOSE_CONSUMER:
                self._closed_by_owner(frame[0].close_consumer.consumer_id)
        if entries:
            await self._follower.take(entries)
        if connection is not None and self._is_live and (grant := carrier.grant()):
            connection.send(grant + carrier.acknowledgement())

    def _closed_by_owner(self, consumer_id: int) -> None:
        """The source is leaving its owner, or an administrator has moved all consumers."""
        connection = self._connection
        if connection is None:
            return
        if self._carrier.is_consumer(consumer_id):
            connection.close("the owner has closed the source")
            return
        for share in self._shares.values():
            if not share.is_consumer(consumer_id):
                continue
            share.is_closed = True
            if share.report.is_attached:
                share.detach()
                if not share.report.is_moving:
                    assert self._nursery is not None
                    self._nursery.start_soon(self._attach_again, connection, share)

    async def _attach_again(self, connection: OwnerConnection, share: Share) -> None:
        try:
            await self._attach(connection, share)
        except (BrokerError, LinkLost) as error:
            connection.close(str(error))

    # --- shares -------------------------------------------------------------------------

    def next_consumer_id(self) -> int:
        """For a new share."""
        return next(self._consumer_ids)

    async def add(self, share: Share) -> Position:
        """Report for this share from now on. Returns where the owner keeps it.

        Raises: NotAllowed: the owner's subscription is no broadcast. ServiceNotReady: there is no
            link now, or the former follower is still connected.
        """
        connection = self._connected()
        self._shares[share.subscription] = share
        try:
            return await self._attach(connection, share)
        except BaseException as error:
            del self._shares[share.subscription]
            share.detach()
            raise _for_clients(error) from None

    async def _attach(self, connection: OwnerConnection, share: Share) -> Position:
        """Raises: OwnershipLost, BrokerError, LinkLost."""
        position = await share.attach(connection)
        await self._follower.check_owner()  # after the owner has admitted it: see above
        if share.is_closed:  # meanwhile: nothing that it reported would count
            connection.close("the owner has closed a share that it had just admitted")
            raise LinkLost(connection.failure)
        share.report.attached(position)
        self.report()
        return position

    async def move_back(self, share: Share, position: Position) -> None:
        """Let the owner keep everything after the position, before the share goes there. The owner
        has stored that when this returns.

        Raises: BrokerError.
        """
        connection = self._connected()
        refusal: BrokerError | None = None
        try:
            try:
                await share.move_back(connection, position)
            except BrokerError as refused:
                refusal = refused
            share.detach()
            await self._attach(connection, share)
        except LinkLost as lost:
            raise _for_clients(lost) from None
        if refusal is not None:
            raise refusal

    async def end(self, share: Share) -> None:
        """The share is not needed any more. An owner that cannot be reached keeps its place until
        the name has been away for as long as names are kept."""
        self._shares.pop(share.subscription, None)
        try:
            await share.leave(self._connected())
        except (BrokerError, LinkLost) as error:
            share.detach()
            log.warning(
                "the owner of the source keeps the place of a share that has ended",
                topic=self._shadow.full,
                subscription=share.subscription,
                reason=str(error),
            )

    def drop(self, share: Share) -> None:
        """The share was not made after all, or does not survive its connection."""
        self._shares.pop(share.subscription, None)
        connection = self._connection
        if connection is not None:
            try:
                share.close(connection)
            except LinkLost:
                return

    def report(self) -> None:
        """Tell the owner what is new."""
        connection = self._connection
        if connection is None or not self._is_live:
            return
        parts = [share.acknowledgement() for share in self._shares.values()]
        frames = b"".join([self._carrier.acknowledgement(), *parts])
        if frames:
            try:
                connection.send(frames)
            except LinkLost:
                return  # the share that is attached next learns where the owner keeps it

    def _connected(self) -> OwnerConnection:
        if self._connection is None or not self._is_live:
            raise ServiceNotReady(
                f"{self._shadow.full} has no link to its source {self._source.full} now: "
                f"{self.problem}; try again"
            )
        return self._connection


def _for_clients(error: BaseException) -> BaseException:
    """The error that clients get for a failure here: a retryable one, unless a retry is useless."""
    if isinstance(error, LinkLost):
        return ServiceNotReady(f"the link to the source was lost, try again: {error}")
    if isinstance(error, BrokerError) and error.server_error == ServerError.ConsumerBusy:
        return ServiceNotReady(f"the former follower is still connected, try again: {error}")
    return error
