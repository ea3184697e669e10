"""The parts of a topic: what it does besides storing messages and giving them to subscriptions.

Deduplication is a part, and so is the compaction of a log of policies. The broker is assembled with
the kinds of parts that it has (`TopicServices.part_kinds`, in this order). A topic asks each kind
whether it is wanted whenever policies are applied, and has a part of each that is. So a topic
without parts pays nothing for them, neither memory nor time.

    not wanted ──make──> in the topic, not loaded ──load──> loaded
        ^                        │    ^                        │
        └───────discard──────────┘    └────────end─────────────┘

A part is made, and asked about messages, before it loads. It loads when all earlier messages are
stored: it restores what is stored by then (`replay`), and is notified of what is stored later
(`stored`), so it misses no message and sees none twice. A load that fails is repeated when policies
are applied again. Until then the part is asked about messages, without its state.

Messages come to a part in runs, one call for all of them: that is the hot path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import trio

    from broker.ground.config import BrokerConfig
    from broker.ground.entry import Entry
    from broker.tenancy.policies.scopes import TopicPolicies
    from broker.topics.subscription.ports import LedgerPort
    from broker.topics.topic.producer import Publish
    from broker.topics.topic.producer_access import ProducerAccess
    from broker.topics.topic.topic_ledger import TopicLedger
    from protocol.errors import BrokerError
    from protocol.position import Position
    from protocol.topic_name import TopicName
    from runtime.clock import Clock

REPLAY_ENTRIES: Final = 1000
REPLAY_BYTES: Final = 8 * 1024 * 1024


class PartServices(Protocol):
    """The services that the broker gives the parts of topics."""

    @property
    def config(self) -> BrokerConfig:
        """The configuration in force."""

    @property
    def clock(self) -> Clock:
        """The clock of the broker."""

    @property
    def nursery(self) -> trio.Nursery:
        """For what a part does in the background."""


class PartOwner(Protocol):
    """A topic, as its parts see it."""

    @property
    def services(self) -> PartServices:
        """The services of the broker."""

    @property
    def name(self) -> TopicName:
        """Its name."""

    @property
    def policies(self) -> TopicPolicies:
        """The policies in force."""

    @property
    def ledger(self) -> TopicLedger:
        """Where its messages are."""

    @property
    def access(self) -> ProducerAccess:
        """Its producers."""

    @property
    def closing(self) -> str:
        """Why it takes nothing more; empty while it is open."""


class TopicPart:
    """One part of one topic. A part overrides what concerns it; here each call does nothing."""

    name: ClassVar[str]
    """The name of its kind."""
    examines: ClassVar[bool] = False
    """Whether it decides which messages are stored. It then sees each with its producer."""

    def __init__(self) -> None:
        self.is_loaded = False
        """Kept by the topic."""

    # --- life ---------------------------------------------------------------------------

    async def load(self) -> None:
        """Restore what is stored, up to the newest entry at the time when this returns: `replay`,
        with no await after it. Every message that was taken before the part was made is stored, or
        has failed.

        Raises: BrokerError, MetadataUnavailable: the topic is not loaded, or its policies are not
            applied.
        """

    async def rest(self) -> None:
        """The topic is put to rest: give up what the next use makes again. Raises: BrokerError."""

    def end(self) -> None:
        """It is not wanted any more: forget everything, as before `load`."""

    async def close(self) -> None:
        """The topic is closed: store what a load needs. All messages are answered, and the ledger
        is open. Raises: BrokerError."""

    async def delete(self) -> None:
        """The topic was deleted with its ledger and its cursors: delete what is stored elsewhere.
        Raises: BrokerError, LedgerError."""

    # --- messages, hot path -------------------------------------------------------------

    def admit(self, publish: Publish) -> bool:
        """Whether this message is stored. The part answers one that is not, or keeps it until it
        does; what is kept counts as taken from its session. Asked only if the part `examines`."""
        del publish
        return True

    def admit_run(self, publishes: list[Publish]) -> list[Publish]:
        """Those of consecutive messages of a producer that are stored."""
        return [publish for publish in publishes if self.admit(publish)]

    def stored(
        self, entries: list[Entry], publishes: list[Publish]
    ) -> Sequence[tuple[int, list[Publish]]]:
        """A group of messages is durable, in order. Only a part that is loaded is notified.
        `publishes`: one for each entry, if the part `examines`. Returns the messages that it kept
        and that get a receipt now, in groups, each with the number of these entries that are
        answered before it."""
        del entries, publishes
        return ()

    def failed(self, publish: Publish, error: BrokerError) -> None:
        """A message that it admitted was not stored, and none after it will be. Told only to a part
        that `examines`."""

    # --- questions ----------------------------------------------------------------------

    def last_sequence_id(self, producer_name: str) -> int:
        """The sequence id after which a new producer of this name continues; -1: unknown."""
        del producer_name
        return -1

    def view(self, log: LedgerPort, *, compacted: bool) -> LedgerPort:
        """The view that subscriptions get of a log, which the parts before this one have made of
        the ledger. `compacted`: for a reader that wants only what compaction has kept. A
        subscription keeps its view: a part that has one is wanted as long as its topic is
        loaded."""
        del compacted
        return log


PartT = TypeVar("PartT", bound=TopicPart)


class PartKind(Generic[PartT]):
    """A kind of part, one object for all topics of a broker."""

    name: ClassVar[str]
    cursors: ClassVar[frozenset[str]] = frozenset()
    """The cursors of its parts, which no subscription may have."""

    def __init__(self) -> None:
        self.loaded: dict[PartT, PartOwner] = {}
        """Its parts that are loaded, each with its topic. Kept by the topics."""

    def wants(self, topic: PartOwner) -> bool:
        """Whether the topic has such a part, by its name and the policies in force."""
        raise NotImplementedError

    def make(self, topic: PartOwner) -> PartT:
        """A part that is not loaded."""
        raise NotImplementedError

    async def discard(self, topic: PartOwner) -> None:
        """The topic has no such part: delete what one has stored, also before the topic was loaded.
        Cheap if there is nothing. Raises: BrokerError, MetadataUnavailable."""

    async def run(self) -> None:
        """Work for all of them, until cancelled. It may end at once."""


async def replay(ledger: TopicLedger, after: Position, take: Callable[[list[Entry]], None]) -> None:
    """Give the entries after a position to `take`, in groups, up to the newest one at the time when
    this returns.

    Raises: BrokerError PersistenceError: storage cannot give them now.
    """
    position = ledger.next_position(after)
    while position <= ledger.last_confirmed:
        entries = await ledger.read(position, REPLAY_ENTRIES, REPLAY_BYTES)
        if not entries:
            break
        take(entries)
        position = ledger.next_position(entries[-1].position)
