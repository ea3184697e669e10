"""Records of real Pulsar brokers and of ours."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.load_history import BundleHistory, broker_averages_record
from broker.cluster.records import BrokerReport, BundleLoad, Leader, Owner, Traffic, Usage, encode
from broker.peers.broker_address import BrokerAddress

REAL_REPORT = """{"webServiceUrl":"http://127.0.0.1:29080","pulsarServiceUrl":"pulsar://127.0.0.1:29650",
"persistentTopicsEnabled":true,"nonPersistentTopicsEnabled":true,
"cpu":{"usage":159.14831378477027,"limit":200.0},"memory":{"usage":74.08106231689453,"limit":676.6875},
"directMemory":{"usage":16.0,"limit":512.0},"bandwidthIn":{"usage":0.0447,"limit":-1000.0},
"bandwidthOut":{"usage":0.0447,"limit":-1000.0},"msgThroughputIn":6484.03,"msgThroughputOut":0.0,
"msgRateIn":49.94,"msgRateOut":0.0,"lastUpdate":1795381268837,
"lastStats":{"t1/n1/0x00000000_0x2bc6ed8c":{"msgRateIn":49.94,"msgThroughputIn":6484.03,"msgRateOut":0.0,
"msgThroughputOut":0.0,"consumerCount":0,"producerCount":1,"topics":1,"cacheSize":0}},
"numTopics":1,"numBundles":1,"numConsumers":0,"numProducers":1,
"bundles":["t1/n1/0x00000000_0x2bc6ed8c","t1/n2/0x80000000_0xc0000000"],
"lastBundleGains":[],"lastBundleLosses":[],"brokerVersionString":"4.0.8","protocols":{},
"advertisedListeners":{},
"loadManagerClassName":"org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl",
"startTimestamp":1795381152727,"maxResourceUsage":0.7957,"loadReportType":"LocalBrokerData"}"""
"""What Pulsar 4.0.8 wrote."""


def test_a_real_report_is_read():
    report = BrokerReport.parse(REAL_REPORT.encode())
    assert report.broker_id == "127.0.0.1:29080"
    assert report.address.broker_service_url == "pulsar://127.0.0.1:29650"
    assert round(report.usage, 3) == 0.796
    assert report.bundles == {
        "t1/n1/0x00000000_0x2bc6ed8c": BundleLoad(
            Traffic(49.94, 0, 6484.03, 0), topics=1, producers=1
        ),
        "t1/n2/0x80000000_0xc0000000": BundleLoad(),
    }


def test_our_report_has_every_field_of_a_real_one():
    ours = BrokerReport.parse(REAL_REPORT.encode()).record
    real = json.loads(REAL_REPORT)
    assert set(real) == set(ours) - {"velaSession"}
    kinds = {float: (int, float), int: (int, float)}
    for name, value in real.items():
        assert isinstance(ours[name], kinds.get(type(value), type(value))), name


def test_records_survive_being_stored():
    address = BrokerAddress("pulsar://a:1", "http://a:2", {"out": "pulsar://b:3"})
    owner = Owner(address, is_disabled=True, session="s-1")
    assert Owner.parse(encode(owner.record)) == owner
    leader = Leader("a:2", "http://a:2", "s-1")
    assert Leader.parse(encode(leader.record)) == leader
    report = BrokerReport(
        address=address,
        cpu=Usage(50, 200),
        bundles={"t/n/0x00000000_0xffffffff": BundleLoad(Traffic(1, 2, 3, 4), 5, 6, 7)},
        updated_ms=1,
        started_ms=2,
        version="4.0.8",
        session="s-1",
    )
    assert BrokerReport.parse(encode(report.record)) == report
    history = BundleHistory().with_sample(BundleLoad(Traffic(1, 2, 3, 4), 5))
    assert BundleHistory.parse(encode(history.record)) == history


def test_a_history_is_a_mean_over_the_last_samples():
    history = BundleHistory()
    for _sample in range(3):
        history = history.with_sample(BundleLoad(Traffic(msg_rate_in=30)))
    for _sample in range(20):
        history = history.with_sample(BundleLoad(Traffic(msg_rate_in=0)))
    assert history.short_term.samples == 10
    assert history.long_term.samples == 23
    assert round(history.long_term.traffic.msg_rate_in, 6) == round(90 / 23, 6)
    assert history.short_term.traffic.msg_rate_in < 4.5


def test_averages_of_a_broker_have_pulsars_names():
    record = broker_averages_record(Traffic(1, 2, 3, 4), Traffic(5, 6, 7, 8))
    assert record == {
        "shortTermMsgThroughputIn": 3,
        "shortTermMsgThroughputOut": 4,
        "shortTermMsgRateIn": 1,
        "shortTermMsgRateOut": 2,
        "longTermMsgThroughputIn": 7,
        "longTermMsgThroughputOut": 8,
        "longTermMsgRateIn": 5,
        "longTermMsgRateOut": 6,
    }


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([10**400, -(10**400), 10**308, 1e308, 5e-324, "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
names = st.sampled_from(
    [*json.loads(REAL_REPORT), "nativeUrl", "httpUrl", "serviceUrl", "brokerId"]
)


@given(
    st.dictionaries(names, json_values).map(lambda value: json.dumps(value).encode()) | st.binary()
)
def test_no_record_breaks_its_reader(data):
    for kind in (Owner, Leader, BrokerReport):
        kind.parse(data)
    BundleHistory.parse(data)


ADDRESSES = {"pulsarServiceUrl": "pulsar://a:1", "webServiceUrl": "http://a:2"}
BUNDLE = "t/n/0x00000000_0xffffffff"


def report_with(**fields):
    return BrokerReport.parse(json.dumps(ADDRESSES | fields).encode())


def test_numbers_of_a_report_are_bounded():
    huge = 10**400
    traffic = {"msgRateIn": huge, "msgRateOut": 1e308, "msgThroughputIn": -huge}
    report = report_with(
        lastUpdate=huge,
        cpu={"usage": huge, "limit": 5e-324},
        lastStats={BUNDLE: traffic | {"topics": huge}},
    )
    history = BundleHistory()
    for _report in range(3):
        history = history.with_sample(report.bundles[BUNDLE])
    for record in (report.record, history.record):
        assert json.loads(encode(record), parse_constant=pytest.fail) == record
    assert report.usage > 1


def test_a_history_with_a_negative_number_of_samples_begins_anew():
    history = BundleHistory.parse(b'{"longTermData": {"numSamples": -1, "msgRateIn": 7}}')
    assert history.with_sample(BundleLoad(Traffic(msg_rate_in=3))).long_term.traffic.msg_rate == 3


@pytest.mark.parametrize("name", ["", "t", "t/n", f"/{BUNDLE[2:]}", f"t//{BUNDLE[4:]}", "a\0b/n/x"])
def test_bundles_without_a_proper_name_are_left_out_of_a_report(name):
    report = report_with(bundles=[name, BUNDLE], lastStats={name: {"topics": 1}})
    assert list(report.bundles) == [BUNDLE]


@pytest.mark.parametrize(
    "url", ["", "a:1", "pulsar://a\r\nX: y", "pulsar://\ud800", "pulsar://\u00e9"]
)
def test_addresses_that_clients_cannot_be_sent_to_are_damage(url):
    assert BrokerReport.parse(json.dumps(ADDRESSES | {"pulsarServiceUrl": url}).encode()) is None
    owner = {"nativeUrl": "pulsar://a:1", "httpUrl": url}
    assert Owner.parse(json.dumps(owner).encode()) is None
