"""How each kind of fault is made on a running cluster under load, and undone.

A function per kind makes the fault, waits, undoes it, and returns when the load goes on. What it
saw besides is in its notes, and what must not be in its violations. What has to be undone only
after the data was read is left in `Scene.afterwards`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, final

import pulsar

from protocol import client as wire
from protocol import pulsar_api_pb2 as pb
from tests.bad_input.raw_connection import RawConnection
from tests.cluster_faults.checks import ProducerHistory
from tests.cluster_faults.file_systems import fill, free
from tests.cluster_faults.load import wait_until
from tests.cluster_faults.plan import CUTS
from tests.cluster_faults.recoveries import recover_twice
from tests.crash.load import message_id_of, payload_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from compat_tests.oracle.vela_broker import VelaBroker
    from tests.cluster_faults.checks import TopicHistory
    from tests.cluster_faults.cluster import FaultCluster, Member
    from tests.cluster_faults.followed import Followed
    from tests.cluster_faults.load import Load
    from tests.cluster_faults.plan import Plan
    from tests.cluster_faults.proxy import Proxies

DIRECT_PRODUCER: Final = 100
"""Number of the producer of a connection straight to a broker."""
DIRECT_NAME: Final = "direct"
NEXT_PRODUCER: Final = 101
"""Number of the producer that has another broker take a topic over."""
DIRECT_MESSAGES: Final = 5
NEXT_MESSAGES: Final = 10
ANSWER_SECONDS_MAX: Final = 10.0
CONNECTED_SECONDS_MAX: Final = 60.0
_Type = pb.BaseCommand


@final
@dataclass
class Scene:
    """What a fault acts on, and what it leaves behind."""

    cluster: FaultCluster
    proxies: Proxies
    load: Load
    plan: Plan
    topics: list[str]
    followed: Followed | None = None
    """The consumers of a broadcast, of kinds that have one."""
    notes: dict[str, Any] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    afterwards: list[Callable[[], None]] = field(default_factory=list)

    @property
    def topic(self) -> str:
        """The one that is hit."""
        return self.topics[self.plan.topic % len(self.topics)]

    @property
    def history(self) -> TopicHistory:
        """Of the topic that is hit."""
        return self.load.histories[self.topic]

    def bookie(self) -> Member:
        """The bookie that is hit."""
        _, ensemble = self.cluster.open_ledger(self.topic)
        member = ensemble[self.plan.place % len(ensemble)]
        self.notes["bookie"] = member.bookie_id
        return member

    def last(self) -> None:
        """Let the fault last."""
        self.notes["lasting_s"] = self.plan.lasting_ms / 1_000
        time.sleep(self.plan.lasting_ms / 1_000)

    def undo(self, start: Callable[[], None]) -> None:
        """Start what was killed: now, or when the data has been read."""
        self.notes["is_up_for_reading"] = self.plan.is_up_for_reading
        if self.plan.is_up_for_reading:
            start()
        else:
            self.afterwards.append(start)


# --- bookies ----------------------------------------------------------------------------


def bookie_killed(scene: Scene) -> None:
    """Its ledgers go on with another."""
    member = scene.bookie()
    member.server.kill()
    scene.load.wait_for_more("a bookie is dead")
    scene.undo(member.server.start)


def bookie_stopped(scene: Scene) -> None:
    """It is silent for longer than the add timeout, and goes on with what it was sent then."""
    member = scene.bookie()
    member.server.pause()
    try:
        scene.last()
    finally:
        member.server.resume()
    scene.load.wait_for_more("a bookie that was stopped goes on")


def connections_cut(scene: Scene) -> None:
    """In one direction or in both."""
    member = scene.bookie()
    proxy = member.proxy
    assert proxy is not None, "bookies of Apache have no proxy"
    scene.notes["is_reset"] = scene.plan.is_reset
    scene.proxies.cut(proxy, CUTS[scene.plan.kind])
    try:
        scene.last()
    finally:
        scene.proxies.heal(proxy, is_reset=scene.plan.is_reset)
    scene.load.wait_for_more("the connections of a bookie are well again")


def disk_full(scene: Scene) -> None:
    """The bookie refuses entries, or ends with its reason in one line; with free space it serves
    again, if need be after a start."""
    member = scene.bookie()
    assert member.data is not None, "there are no small file systems"
    scene.notes["left_bytes"] = scene.plan.disk_left_bytes
    fill(member.data, scene.plan.disk_left_bytes)
    try:
        scene.last()
        scene.load.wait_for_more("the disk of a bookie is full")
    finally:
        free(member.data)
    ended = member.server.how_it_ended()
    scene.notes["has_ended"] = ended is not None
    if ended is not None:
        scene.notes["last_line"] = member.server.log_tail(500).strip().splitlines()[-1]
        member.server.start()
    wait_until(
        "a bookie whose disk has space again takes entries",
        lambda: member.bookie_id in scene.cluster.registered_bookies(),
    )
    scene.load.wait_for_more("the disk of a bookie has space again")


# --- brokers ----------------------------------------------------------------------------


def broker_killed(scene: Scene) -> None:
    """Its topics are served by the other one when its session is over."""
    owner = scene.cluster.owner_of(scene.topic)
    owner.kill()
    scene.load.wait_for_more("a broker is dead")
    scene.undo(owner.start)


def broker_stopped(scene: Scene) -> None:
    """Its session ends while it stands still, and mostly another one serves its topics then. What
    it was sent meanwhile waits in its sockets, and is the first thing that it finds."""
    cluster, history = scene.cluster, scene.history
    owner = cluster.owner_of(scene.topic)
    other = cluster.other_than(owner)
    direct = history.producers[DIRECT_PRODUCER] = ProducerHistory()
    with RawConnection(owner.service_url, CONNECTED_SECONDS_MAX) as connection:
        _produce_directly(scene, connection, direct)
        owner.pause()
        try:
            wait_until(
                "the end of the session of a broker that stands still",
                lambda: other.http("GET", "/admin/v2/brokers")[1] == [other.broker_id],
            )
            if scene.plan.is_taken_over:
                _take_over(scene, other)
            for message in range(1, DIRECT_MESSAGES):
                history.refused.add((DIRECT_PRODUCER, message))
                connection.send(_message(scene, message))
        finally:
            owner.resume()
        answers = connection.outcome(wait_seconds=ANSWER_SECONDS_MAX)
    scene.notes["is_taken_over"] = scene.plan.is_taken_over
    scene.notes["answers"] = list(answers)
    if "SEND_RECEIPT" in answers:
        scene.violations.append(f"ACCEPTED: a broker whose session was over answered {answers}")
    if scene.plan.is_taken_over:
        _is_refused(scene, owner)
    scene.load.wait_for_more("a broker that stood still goes on")


def _produce_directly(scene: Scene, connection: RawConnection, direct: ProducerHistory) -> None:
    """A producer of the owner, with one message that has its receipt."""
    connection.connect()
    request_id = connection.request_id()
    connection.send(wire.producer(scene.topic, 1, request_id, producer_name=DIRECT_NAME))
    connection.expect(_Type.PRODUCER_SUCCESS)
    direct.sent = DIRECT_MESSAGES
    connection.send(_message(scene, 0))
    receipt = connection.expect(_Type.SEND_RECEIPT).send_receipt.message_id
    direct.receipts[0] = (receipt.ledgerId, receipt.entryId, -1)
    connection.seen.clear()


def _message(scene: Scene, message: int) -> bytes:
    payload = payload_of(scene.plan.seed, DIRECT_PRODUCER, message)
    content = wire.message(payload, producer_name=DIRECT_NAME, sequence_id=message)
    return wire.send(1, message, content)


def _take_over(scene: Scene, other: VelaBroker) -> None:
    """Messages of a new client, which the other broker stores."""
    history = scene.history.producers[NEXT_PRODUCER] = ProducerHistory()
    client = pulsar.Client(other.service_url, operation_timeout_seconds=120)
    producer = client.create_producer(
        scene.topic,
        producer_name="next",
        send_timeout_millis=0,
        batching_enabled=False,
    )
    for message in range(NEXT_MESSAGES):
        history.sent += 1
        position = producer.send(payload_of(scene.plan.seed, NEXT_PRODUCER, message))
        history.receipts[message] = message_id_of(position)
    client.close()


def _is_refused(scene: Scene, broker: VelaBroker) -> None:
    """A new connection, which asks nobody for the owner, gets no producer of the topic."""
    with RawConnection(broker.service_url, CONNECTED_SECONDS_MAX) as connection:
        connection.send(wire.connect())
        request_id = connection.request_id()
        connection.send(wire.producer(scene.topic, 1, request_id, producer_name="uninvited"))
        answers = connection.outcome(wait_seconds=ANSWER_SECONDS_MAX)
    scene.notes["answers_to_producer"] = list(answers)
    if "PRODUCER_SUCCESS" in answers:
        scene.violations.append(f"ACCEPTED: a producer of a topic of another broker: {answers}")


# --- brokers of a broadcast -------------------------------------------------------------


def follower_killed(scene: Scene) -> None:
    """Its share is served by another broker when its session is over."""
    followed = _followed(scene)
    follower = scene.cluster.owner_of(followed.shadow)
    follower.kill()
    _everybody_goes_on(scene, "a follower is dead")
    scene.undo(follower.start)


def follower_stopped(scene: Scene) -> None:
    """Its session ends while it stands still, and mostly another one serves its share then.
    Patient consumers have stayed with it, and their acknowledgements are in its sockets."""
    cluster, followed = scene.cluster, _followed(scene)
    follower = cluster.owner_of(followed.shadow)
    other = cluster.other_than(follower)
    follower.pause()
    try:
        wait_until(
            "the end of the session of a follower that stands still",
            lambda: follower.broker_id not in other.http("GET", "/admin/v2/brokers")[1],
        )
        if scene.plan.is_taken_over:
            scene.load.wait_for_more("a follower stands still")
            followed.wait_for_more(
                "a follower stands still", at=followed.shadow, only_impatient=True
            )
    finally:
        follower.resume()
    scene.notes["is_taken_over"] = scene.plan.is_taken_over
    _everybody_goes_on(scene, "a follower that stood still goes on")


def owner_of_followed_topic_killed(scene: Scene) -> None:
    """Followers find the next owner."""
    owner = scene.cluster.owner_of(scene.topic)
    owner.kill()
    _everybody_goes_on(scene, "the owner of a followed topic is dead")
    scene.undo(owner.start)


def _followed(scene: Scene) -> Followed:
    assert scene.followed is not None, "a kind without followers"
    return scene.followed


def _everybody_goes_on(scene: Scene, what: str) -> None:
    """Return when all consumers of all shares have got messages that were sent after this call."""
    begun = time.monotonic()
    scene.load.wait_for_more(what)
    _followed(scene).wait_for_more(what)
    scene.notes["everybody_after_s"] = round(time.monotonic() - begun, 2)


# --- metadata and ledgers ---------------------------------------------------------------


def zookeeper_killed(scene: Scene) -> None:
    """Brokers go on by themselves when it is back."""
    scene.cluster.zookeeper.kill()
    try:
        scene.last()
    finally:
        scene.cluster.zookeeper.start()
    scene.load.wait_for_more("ZooKeeper is back")


def two_recoveries(scene: Scene) -> None:
    """Both find the same end, and the topic goes on with another ledger."""
    cluster, plan = scene.cluster, scene.plan
    ledger_id, ends = recover_twice(
        cluster.hosts,
        lambda: cluster.open_ledger(scene.topic)[0],
        plan.apart_ms / 1_000,
        cluster.times.add_timeout_seconds,
    )
    scene.notes |= {"ledger": ledger_id, "last_entries": ends, "apart_s": plan.apart_ms / 1_000}
    if len(set(ends)) != 1:
        scene.violations.append(f"DISAGREED: two recoveries of ledger {ledger_id} found {ends}")
    newest = max(
        (
            position[1]
            for producer in scene.history.producers.values()
            for position in list(producer.receipts.values())
            if position[0] == ledger_id
        ),
        default=-1,
    )
    if newest > min(ends):
        scene.violations.append(
            f"LOST: ledger {ledger_id} was closed at {min(ends)}, and {newest} had its receipt"
        )
    scene.load.wait_for_more("a ledger was recovered by others")


FAULTS: Final[dict[str, Callable[[Scene], None]]] = {
    "bookie-killed": bookie_killed,
    "bookie-stopped": bookie_stopped,
    **dict.fromkeys(CUTS, connections_cut),
    "broker-killed": broker_killed,
    "broker-stopped": broker_stopped,
    "zookeeper-killed": zookeeper_killed,
    "two-recoveries": two_recoveries,
    "disk-full": disk_full,
    "follower-killed": follower_killed,
    "follower-stopped": follower_stopped,
    "owner-of-followed-topic-killed": owner_of_followed_topic_killed,
}
"""By the kinds of `plan.KINDS`."""
