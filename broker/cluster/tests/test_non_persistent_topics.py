"""The non-persistent topics of a namespace, asked for bundle by bundle."""

import json

import pytest
import trio

from broker.cluster import non_persistent_topics
from broker.cluster.namespace_bundles import NamespaceBundles
from broker.cluster.non_persistent_topics import ASKED_AT_ONCE, NonPersistentTopics
from broker.ground.config import BrokerConfig
from broker.peers.broker_address import BrokerAddress
from broker.tenancy.namespaces.namespaces import Namespaces
from metadata.memory_store import MemoryStore
from protocol.errors import ServiceNotReady, TopicNotFound

NAMESPACE = "public/n"
PATH = f"/admin/v2/non-persistent/{NAMESPACE}"
RANGES = [
    "0x00000000_0x40000000",
    "0x40000000_0x80000000",
    "0x80000000_0xc0000000",
    "0xc0000000_0xffffffff",
]
NOBODY = (204, b"")


def named(*names):
    return 200, json.dumps([f"non-persistent://{NAMESPACE}/{name}" for name in names]).encode()


class Owners:
    """The brokers of a cluster: what each bundle's owner answers, by path."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        self.waiting = 0
        self.most_waiting = 0

    async def ask(self, method, path, body):
        assert (method, body) == ("GET", b"")
        self.asked.append(path)
        self.waiting += 1
        self.most_waiting = max(self.waiting, self.most_waiting)
        await trio.sleep(1)
        self.waiting -= 1
        answer = self.answers.get(path.removeprefix(f"{PATH}/"), NOBODY)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def lists_over(owners, count=4, boundaries=None):
    store = MemoryStore()
    namespaces = Namespaces(store, BrokerConfig())
    await namespaces.bootstrap(BrokerAddress("pulsar://b0:6650", "http://b0:8080"))
    given = {"numBundles": count} | ({"boundaries": boundaries} if boundaries else {})
    await namespaces.create(NAMESPACE, {"bundles": given})
    return NonPersistentTopics(NamespaceBundles(store, namespaces), owners.ask)


async def test_the_topics_of_all_owners_are_one_list_in_order(autojump_clock):
    owners = Owners({RANGES[0]: named("c", "a"), RANGES[1]: named(), RANGES[3]: named("b")})
    lists = await lists_over(owners)
    expected = [f"non-persistent://{NAMESPACE}/{name}" for name in "abc"]
    assert await lists.of(NAMESPACE) == expected
    assert sorted(owners.asked) == [f"{PATH}/{each}" for each in RANGES]


async def test_the_topics_of_one_bundle_are_asked_of_its_owner_alone(autojump_clock):
    owners = Owners({RANGES[0]: named("a"), RANGES[1]: named("c", "b"), RANGES[2]: (500, b"")})
    lists = await lists_over(owners)
    expected = [f"non-persistent://{NAMESPACE}/{name}" for name in "bc"]
    assert await lists.of(NAMESPACE, RANGES[1]) == expected
    assert await lists.of(NAMESPACE, "0x00000000_0x80000000") == []
    assert owners.asked == [f"{PATH}/{RANGES[1]}"]


async def test_names_of_other_domains_and_namespaces_are_left_out(autojump_clock):
    others = [f"persistent://{NAMESPACE}/p", "non-persistent://public/other/x"]
    owners = Owners({RANGES[0]: (200, json.dumps(others).encode())})
    assert await (await lists_over(owners)).of(NAMESPACE) == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (ServiceNotReady("Another broker does not answer: refused"), "Another broker does not"),
        (
            (412, b'{"reason": "Invalid bundle range: x"}'),
            r"the answer was 412 \(Invalid bundle range: x\)",
        ),
        ((500, b"<html>"), "the answer was 500$"),
        ((405, b""), "the answer was 405$"),
        (
            (501, b'{"reason": "getListFromBundle is not supported by Vela"}'),
            r"the answer was 501 \(getListFromBundle is not supported by Vela\)",
        ),
        ((200, b'{"a": 1}'), "the answer .* no list of names"),
        ((200, b"[1]"), "the answer .* no list of names"),
        ((200, b"[" * 100_000), "the answer .* no list of names"),
        ((200, b"\xff"), "the answer .* no list of names"),
    ],
)
async def test_a_bundle_whose_topics_are_not_known_is_named(autojump_clock, answer, reason):
    owners = Owners({RANGES[0]: named("a"), RANGES[2]: answer})
    lists = await lists_over(owners)
    told = f"^The non-persistent topics of bundle {NAMESPACE}/{RANGES[2]} are not known: {reason}"
    with pytest.raises(ServiceNotReady, match=told):
        await lists.of(NAMESPACE)


async def test_owners_are_asked_some_at_a_time_and_none_after_a_failure(autojump_clock):
    owners = Owners({})
    assert await (await lists_over(owners, count=100)).of(NAMESPACE) == []
    assert len(owners.asked) == 100
    assert owners.most_waiting == ASKED_AT_ONCE
    refused = Owners({"0x00000000_0x028f5c28": (500, b"")})
    lists = await lists_over(refused, count=100)
    with pytest.raises(ServiceNotReady, match="the answer was 500"):
        await lists.of(NAMESPACE)
    assert len(refused.asked) <= 2 * ASKED_AT_ONCE


async def test_all_answers_together_are_bounded(autojump_clock, monkeypatch):
    owners = Owners({each: named("x" * 100) for each in RANGES})
    monkeypatch.setattr(non_persistent_topics, "BYTES_MAX", 300)
    with pytest.raises(ServiceNotReady, match="more than 300 bytes"):
        await (await lists_over(owners)).of(NAMESPACE)


async def test_a_large_answer_is_read_like_a_small_one(autojump_clock):
    names = [f"topic-{number:06}" for number in range(3_000)]
    owners = Owners({RANGES[1]: named(*names)})
    found = await (await lists_over(owners)).of(NAMESPACE)
    assert found == [f"non-persistent://{NAMESPACE}/{name}" for name in names]


async def test_callers_that_wait_share_a_list(autojump_clock):
    owners = Owners({RANGES[0]: named("a")})
    lists = await lists_over(owners)
    async with trio.open_nursery() as nursery:
        for _ in range(50):
            nursery.start_soon(lists.of, NAMESPACE)
    assert len(owners.asked) <= 2 * len(RANGES)


async def test_a_namespace_without_bundles_has_no_topics(autojump_clock):
    """It can be deleted and created with better ones."""
    owners = Owners({})
    lists = await lists_over(owners, boundaries=["0x10000000"] * 5)
    assert await lists.of(NAMESPACE) == []
    assert owners.asked == []
    with pytest.raises(TopicNotFound):
        await lists.of("public/none")
