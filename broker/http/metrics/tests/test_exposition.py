"""The metrics page: names that dashboards read, and values that agree with topic stats."""

from __future__ import annotations

import dataclasses

import trio
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from broker.assembly.app import running_broker
from broker.ground.config import DEFAULT_CONFIG
from broker.ground.entry import Entry
from broker.ground.histograms import EntrySizes, MinuteCounts, PublishTimes
from broker.http.metrics import exposition
from broker.http.metrics.authentication_series import add_authentication_series
from broker.http.metrics.cache_series import CacheSeries
from broker.http.metrics.exposition import STEPS_PER_SLICE
from broker.managed_ledger.entry_cache import EntryCache, TopicCache
from broker.topics.subscription.request import SubscriptionRequest
from protocol.topic_name import TopicName
from runtime.watchdog import LoopWatchdog, watching
from security.authentication.claims import ClaimRules
from security.authentication.counts import AuthenticationCounts
from security.authentication.identity import AuthenticationFailed, Flaw, Identity
from security.authentication.signatures import key_of_secret
from security.authentication.token import TokenProvider
from web.prometheus import Page, label_text, quantile

CONFIG = dataclasses.replace(DEFAULT_CONFIG, brokerServicePort=0, webServicePort=0)
LE = ("0_5", "1", "5", "10", "20", "50", "100", "200", "1000")
SIZES = ("128", "512", "1_kb", "2_kb", "4_kb", "16_kb", "100_kb", "1_mb")
DASHBOARD_NAMES = {
    *(f"pulsar_{name}" for name in (
        "rate_in", "rate_out", "throughput_in", "throughput_out", "msg_backlog", "storage_size",
        "storage_backlog_size", "storage_write_rate", "storage_read_rate",
        "storage_offloaded_size", "storage_backlog_quota_limit", "topics_count",
        "storage_backlog_quota_limit_time", "storage_backlog_age_seconds",
        "storage_backlog_quota_exceeded_evictions_total",
        "broker_storage_backlog_quota_exceeded_evictions_total",
        "storage_backlog_quota_check_duration_seconds_bucket",
        "subscription_msg_rate_expired", "subscription_total_msg_expired",
        "subscription_last_expire_timestamp",
        "producers_count", "consumers_count", "subscriptions_count", "replication_rate_in",
        "replication_rate_out", "replication_backlog", "version_info", "broker_publish_latency",
        "subscription_back_log", "subscription_msg_rate_out", "subscription_msg_throughput_out",
        "subscription_delayed", "subscription_blocked_on_unacked_messages",
        "ml_count", "ml_cache_used_size", "ml_cache_entries", "ml_cache_inserted_entries_total",
        "ml_cache_evicted_entries_total", "ml_cache_evictions", "ml_cache_hits_rate",
        "ml_cache_hits_throughput", "ml_cache_misses_rate", "ml_cache_misses_throughput",
        "storage_write_latency_overflow", "storage_write_latency_count", "entry_size_le_overflow",
    )),
    *(f"pulsar_storage_write_latency_le_{limit}" for limit in LE),
    *(f"pulsar_add_entry_latency_le_{limit}" for limit in LE),
    *(f"pulsar_entry_size_le_{limit}" for limit in SIZES),
    *(f"bookkeeper_server_{name}" for name in (
        "ADD_ENTRY", "ADD_ENTRY_count", "READ_ENTRY", "READ_ENTRY_REQUEST",
    )),
    *(f"bookie_journal_JOURNAL_{name}" for name in (
        "SYNC", "ADD_ENTRY", "QUEUE_SIZE", "FORCE_WRITE_QUEUE_SIZE", "CB_QUEUE_SIZE",
    )),
    *(f"bookie_{name}" for name in (
        "write_cache_size", "write_cache_hits", "write_cache_misses",
        "read_cache_size", "read_cache_count", "read_cache_hits", "read_cache_misses",
        "entries_count", "ledgers_count", "SERVER_STATUS", "READ_BYTES", "WRITE_BYTES",
        "MINOR_COMPACTION_COUNT", "MAJOR_COMPACTION_COUNT",
        "RECLAIMED_COMPACTION_SPACE_BYTES", "RECLAIMED_DELETION_SPACE_BYTES",
    )),
}  # fmt: skip


def samples(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


class Quiet:
    """No listener needs the outcome of appends."""

    def on_appended(self, entries, contexts):
        pass

    def on_append_failed(self, context, error):
        raise AssertionError(error)

    def on_fenced(self):
        raise AssertionError


async def test_every_name_that_dashboards_read_is_there():
    async with running_broker(CONFIG, None) as broker:
        topic = await broker.service.get_or_load_topic(TopicName.parse("a"), create=True)
        await topic.open_subscription(SubscriptionRequest(name='quoted "s"\\'))
        topic.ledger.listener = Quiet()
        await topic.ledger.read(topic.ledger.first_position, 1, 1)
        for _ in range(3):
            topic.ledger.append(Entry(bytes(10), 1), None)
        await topic.finish_publishes()
        while topic.ledger.last_confirmed[1] < 2:
            await topic.ledger.cursors['quoted "s"\\'].flush()
        found = samples("".join((await broker.admin.metrics.page()).pieces()))
        assert set(found) >= DASHBOARD_NAMES
        labels, value = found["pulsar_msg_backlog"][0]
        assert labels == {
            "cluster": "standalone",
            "namespace": "public/default",
            "topic": "persistent://public/default/a",
        }
        assert value == topic.subscriptions['quoted "s"\\'].backlog_entries == 3
        assert found["pulsar_subscription_back_log"][0][0]["subscription"] == 'quoted "s"\\'
        assert "pulsar_consumer_msg_rate_out" not in found


async def test_sums_per_namespace_when_topics_are_too_many():
    config = dataclasses.replace(CONFIG, exposeTopicLevelMetricsInPrometheus=False)
    async with running_broker(config, None) as broker:
        for name in ("a", "b"):
            await broker.service.get_or_load_topic(TopicName.parse(name), create=True)
        found = samples("".join((await broker.admin.metrics.page()).pieces()))
        assert found["pulsar_topics_count"][0][1] == 2
        assert [labels.keys() for labels, _ in found["pulsar_rate_in"]] == [
            {"cluster", "namespace"}
        ]


class TopicsByRound(trio.abc.Instrument):
    """The most topics of which series were made in one round of the loop."""

    def __init__(self):
        self.made = self.most = 0

    def after_io_wait(self, timeout):
        self.made = 0

    def wrap(self, add_row):
        def counted(page, labels, row, *, all_series):
            self.made += all_series
            self.most = max(self.most, self.made)
            add_row(page, labels, row, all_series=all_series)

        return counted


async def test_a_page_is_made_of_a_few_topics_in_a_round(monkeypatch):
    topics = TopicsByRound()
    monkeypatch.setattr(exposition, "add_row", topics.wrap(exposition.add_row))
    async with running_broker(CONFIG, None) as broker:
        for number in range(5 * STEPS_PER_SLICE):
            await broker.service.get_or_load_topic(TopicName.parse(f"t{number}"), create=True)
        trio.lowlevel.add_instrument(topics)
        page = await broker.admin.metrics.page()
        trio.lowlevel.remove_instrument(topics)
    assert len(samples("".join(page.pieces()))["pulsar_rate_in"]) == 5 * STEPS_PER_SLICE
    assert 0 < topics.most <= STEPS_PER_SLICE


async def test_stalls_of_the_loop_are_counted_where_it_is_watched():
    watchdog = LoopWatchdog()
    with watching(watchdog):
        async with running_broker(CONFIG, None) as broker:
            watchdog.called(samples, 0.004)
            found = samples("".join((await broker.admin.metrics.page()).pieces()))
    labels = {"cluster": "standalone", "kind": "callback", "name": "samples"}
    assert (labels, 0.004) in found["vela_event_loop_stall_seconds_sum"]
    assert (labels, 1) in found["vela_event_loop_stall_cpu_seconds_count"]


def test_sizes_are_counted_up_to_their_limits():
    limits = [128, 512, 1024, 2048, 4096, 16384, 102400, 1048576]
    for index, limit in enumerate(limits):
        sizes = EntrySizes()
        sizes.add(limit)
        sizes.add(limit + 1)
        counts = sizes.counts()
        assert counts[index] == 1, limit
        assert counts[index + 1] == 1, limit


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 8)), max_size=40))
def test_every_message_is_timed_once(turns: list[tuple[int, int]]):
    times = PublishTimes()
    taken = answered = 0
    for number, (count, answers) in enumerate(turns):
        taken += count
        times.sent(taken, float(number))
        answered = min(taken, answered + answers)
        times.answered(answered, number + 0.004)
        assert sum(times.counts()) == answered
    times.answered(taken, 100.0)
    assert sum(times.counts()) == taken


def test_a_minute_holds_what_was_counted_in_it():
    minute = MinuteCounts()
    assert minute.last([3.0]) == [3.0]
    minute.close([5.0])
    assert minute.last([9.0]) == [5.0]
    minute.close([9.0])
    assert minute.last([9.0]) == [4.0]
    minute.close([9.0])
    assert minute.last([9.0]) == [0.0]
    minute.close([10.0])
    assert minute.last([11.0]) == [1.0]


def test_minutes_in_which_nothing_was_counted_share_their_zeros():
    minutes = [MinuteCounts() for _ in range(2)]
    for _ in range(2):
        for minute in minutes:
            minute.close([0, 0.0])
    assert minutes[0].last([0, 0.0]) is minutes[1].last([0, 0.0])
    minutes[0].close([3, 0.5])
    assert minutes[0].last([3, 0.5]) == [3, 0.5]
    assert minutes[1].last([0, 0.0]) == [0, 0.0]


def test_quantiles_are_limits_of_buckets():
    assert quantile([0, 0, 0], (1, 2), 0.5) == 0.0
    assert quantile([90, 9, 1], (1, 2), 0.5) == 1.0
    assert quantile([90, 9, 1], (1, 2), 0.99) == 2.0
    assert quantile([0, 0, 1], (1, 2), 0.5) == 2.0


def test_page_escapes_labels():
    page = Page()
    page.add("a", "gauge", "Help", label_text({"l": 'x"\\\ny'}), 1)
    page.add("b", "gauge", "Help", "", 2.5)
    found = samples("".join(page.pieces()))
    assert found == {"a": [({"l": 'x"\\\ny'}, 1.0)], "b": [({}, 2.5)]}


def test_authentication_is_counted_under_pulsars_names():
    counts = AuthenticationCounts(lambda: 1000.0, watches_expiry=True)
    provider = TokenProvider(key_of_secret(bytes(32)), ClaimRules(), lambda: 1000.0)
    counts.accepted(provider, Identity("alice", "token", 1000.0 + 3600.0))
    counts.refused(provider, AuthenticationFailed("no", Flaw.EXPIRED))
    page = Page()
    add_authentication_series(page, counts, {"cluster": "c"})
    found = samples("".join(page.pieces()))
    of_token = {
        "cluster": "c",
        "provider_name": "AuthenticationProviderToken",
        "auth_method": "token",
    }
    assert found["pulsar_authentication_success_total"] == [(of_token, 1)]
    assert found["pulsar_authentication_failures_total"] == [
        ({**of_token, "reason": "INVALID_TOKEN"}, 1)
    ]
    assert found["pulsar_expired_token_total"] == [({"cluster": "c"}, 1)]
    assert found["pulsar_expiring_token_minutes_sum"] == [({"cluster": "c"}, 60)]
    classes = {
        labels["le"]: count for labels, count in found["pulsar_expiring_token_minutes_bucket"]
    }
    assert classes["10.0"] == 0
    assert classes["60.0"] == classes["525600.0"] == classes["+Inf"] == 1
    assert "alice" not in str(found)


def test_the_rates_of_the_cache_are_those_of_the_last_minute():
    cache = EntryCache(1 << 20, 1.0)
    topic = TopicCache(cache)
    topic.append_tail(1, 0, [Entry(bytes(100), 1, (1, each)) for each in range(60)], 6_000, 0.0)
    series = CacheSeries(cache)

    def exported():
        page = Page()
        series.add(page, 3, {"cluster": "c"}, 60.0)
        found = samples("".join(page.pieces()))
        assert all(labels == {"cluster": "c"} for [(labels, _)] in found.values())
        return {name.removeprefix("pulsar_ml_"): value for name, [(_, value)] in found.items()}

    topic.get(1, 0, 60, 1 << 20)
    topic.count_misses(120, 12_000)
    series.close_minute()
    topic.get(1, 0, 60, 1 << 20)
    assert exported() == {
        "count": 3,
        "cache_hits_rate": 1,
        "cache_hits_throughput": 100,
        "cache_misses_rate": 2,
        "cache_misses_throughput": 200,
        "cache_used_size": 6_000,
        "cache_entries": 60,
        "cache_inserted_entries_total": 60,
        "cache_evicted_entries_total": 0,
        "cache_evictions": 0,
    }
    cache.evict_old(now=2.0)
    series.close_minute()
    after = exported()
    assert (after["cache_hits_rate"], after["cache_misses_rate"]) == (1, 0)
    assert (after["cache_evictions"], after["cache_entries"]) == (1, 0)
    assert after["cache_evicted_entries_total"] == 60
