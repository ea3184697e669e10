"""The load that a broker reports."""

from types import SimpleNamespace

from broker.assembly.process_load import ProcessLoad
from broker.cluster.records import BundleLoad
from broker.topics.topic.publish_totals import PublishTotals
from protocol.topic_name import TopicName

NAME = TopicName.parse("persistent://public/default/t")


class Clock:
    """Moved by hand."""

    def __init__(self):
        self.time = 100.0

    def now(self):
        return self.time


class Subscription:
    """Has delivered messages and bytes."""

    def __init__(self):
        self.counts = (0, 0)
        self.consumers = [object()]

    def delivered(self):
        return self.counts


class Topic:
    """One with a producer and a subscription. Like a compiled one it has its attributes and no
    others, and cannot be referred to weakly."""

    __slots__ = ("access", "closing", "published", "subscriptions")
    name = NAME

    def __init__(self):
        self.closing = ""
        self.access = SimpleNamespace(producers={1: object()})
        self.subscriptions = {"s": Subscription()}
        self.published = PublishTotals({1: SimpleNamespace(messages_in=30, bytes_in=300)})
        self.published.end_window(10.0)


def test_topics_report_their_clients_and_rates():
    clock, topic = Clock(), Topic()
    load = ProcessLoad(SimpleNamespace(topics={NAME.full: topic}), clock)
    ((name, first),) = load.topics()
    assert name == NAME
    assert isinstance(first, BundleLoad)
    assert (first.topics, first.producers, first.consumers) == (1, 1, 1)
    assert (first.traffic.msg_rate_in, first.traffic.msg_rate_out) == (3.0, 0.0)
    clock.time += 10
    topic.subscriptions["s"].counts = (50, 500)
    ((_name, second),) = load.topics()
    assert (second.traffic.msg_rate_out, second.traffic.throughput_out) == (5.0, 50.0)
    clock.time += 0.1
    ((_name, soon),) = load.topics()
    assert soon.traffic.msg_rate_out == 5.0
    clock.time += 10
    topic.subscriptions["s"].counts = (0, 0)
    ((_name, after_deletion),) = load.topics()
    assert after_deletion.traffic.msg_rate_out == 0.0
    topic.closing = "moved"
    assert not list(load.topics())


def test_nothing_is_kept_of_topics_that_are_gone():
    topics = {NAME.full: Topic()}
    load = ProcessLoad(SimpleNamespace(topics=topics), Clock())
    assert list(load.topics())
    topics.clear()
    assert not list(load.topics())
    assert not load._delivered


def test_the_process_reports_its_share_of_the_machine():
    clock = Clock()
    load = ProcessLoad(SimpleNamespace(topics={}), clock)
    clock.time += 1.0
    used = load.resources()
    assert used.cpu.usage >= 0
    assert used.cpu.limit >= 100
    assert 1 < used.memory.usage < used.memory.limit
