"""Lists of non-persistent topics: of one bundle, and in a cluster of all brokers."""

import pytest
import trio

from broker.cluster.bundles import Boundaries
from broker.peers.broker_address import BrokerAddress
from broker.peers.ownership import Whereabouts
from protocol.errors import ServiceNotReady
from protocol.topic_name import TopicName

OTHER = BrokerAddress("pulsar://other:6650", "http://other:8080")
NS = "public/default"
RANGES = [
    "0x00000000_0x40000000",
    "0x40000000_0x80000000",
    "0x80000000_0xc0000000",
    "0xc0000000_0xffffffff",
]


def full(name, domain="non-persistent"):
    return f"{domain}://{NS}/{name}"


async def load(http, *names, domain="non-persistent"):
    for name in names:
        assert (await http("PUT", f"{domain}/{NS}/{name}"))[0] == 204


def within(range_text, *names, domain="non-persistent"):
    """The full names in a bundle, in order."""
    boundaries = Boundaries.parse(NS, [*(each[:10] for each in RANGES), "0xffffffff"])
    bundle = boundaries.find(range_text)
    topics = [TopicName.parse(full(name, domain)) for name in sorted(names)]
    return [topic.full for topic in topics if bundle.contains(topic)]


async def test_each_bundle_lists_its_topics(http):
    names = [f"t{number}" for number in range(12)]
    await load(http, *names)
    await load(http, "stored", domain="persistent")
    found = []
    for each in RANGES:
        status, answer = await http("GET", f"non-persistent/{NS}/{each}")
        assert (status, answer) == (200, within(each, *names))
        found += answer
    assert sorted(found) == sorted(map(full, names))
    assert (await http("GET", f"non-persistent/{NS}/0x0_0x40000000"))[0] == 200


async def test_the_list_of_a_bundle_has_names_reserved_for_brokers_too(http):
    """And that of a namespace only if asked for, as on Pulsar 4.0.8."""
    await load(http, "__change_events", "plain")
    found = [await http("GET", f"non-persistent/{NS}/{each}") for each in RANGES]
    assert sorted(name for _, names in found for name in names) == [
        full("__change_events"),
        full("plain"),
    ]
    assert await http("GET", f"non-persistent/{NS}") == (200, [full("plain")])


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_the_list_of_a_namespace_can_be_limited_to_a_bundle(http, domain):
    names = [f"t{number}" for number in range(12)]
    await load(http, *names, "__change_events", domain=domain)
    for each in RANGES:
        expected = within(each, *names, domain=domain)
        assert expected
        found = await http("GET", f"{domain}/{NS}?bundle={each}&bundle=x")
        assert found == (200, expected)
    listed = [
        await http("GET", f"{domain}/{NS}?includeSystemTopic=true&bundle={each}") for each in RANGES
    ]
    assert sum(len(names) for _, names in listed) == 13
    assert await http("GET", f"{domain}/public/none?bundle={RANGES[0]}") == (
        404,
        "Namespace does not exist",
    )


NO_RANGES = [
    "x",
    "0x00000000_0x80000000",
    "0x00000000_0xffffffff",
    "0x10000000_0x20000000",
    "0x0_0x40000000",
    "0X00000000_0X40000000",
    "0xC0000000_0xFFFFFFFF",
    "%200x00000000_0x40000000",
    f"{NS}/0x00000000_0x40000000",
]


@pytest.mark.parametrize("domain", ["persistent", "non-persistent"])
async def test_a_text_that_is_no_bundle_has_no_topics(http, domain):
    """No text at all means every bundle for topics in memory, and none for stored ones. Observed on
    Pulsar 4.0.8."""
    names = [f"t{number}" for number in range(12)]
    await load(http, *names, domain=domain)
    for text in NO_RANGES:
        assert await http("GET", f"{domain}/{NS}?bundle={text}") == (200, [])
    for blank in ("", "%20"):
        status, found = await http("GET", f"{domain}/{NS}?bundle={blank}")
        assert (status, len(found)) == (200, 12 if domain == "non-persistent" else 0)


async def test_a_namespace_without_bundles_lists_none(http):
    bundles = {"numBundles": 1, "boundaries": ["0x10000000", "0x20000000"]}
    assert (await http("PUT", "namespaces/public/odd", {"bundles": bundles}))[0] == 204
    for domain in ("persistent", "non-persistent"):
        found = await http("GET", f"{domain}/public/odd?bundle=0x10000000_0x20000000")
        assert found == (200, [])


@pytest.mark.parametrize(
    ("asked", "status", "told"),
    [
        (f"{NS}/x", 412, "Invalid bundle range: x"),
        (f"{NS}/%20", 412, "Invalid bundle range:  "),
        (
            f"{NS}/0x00000000_0xffffffff",
            412,
            f"Invalid upper boundary for bundle {NS}/0x00000000_0xffffffff. Expected upper "
            f"boundary of {NS}/0x00000000_0x40000000",
        ),
        ("public/none/0x00000000_0x40000000", 404, "Namespace does not exist"),
        ("none/none/x", 404, "Namespace does not exist"),
    ],
)
async def test_other_bundles_are_refused_as_by_pulsar(http, asked, status, told):
    """Observed on Pulsar 4.0.8."""
    assert await http("GET", f"non-persistent/{asked}") == (status, told)


async def test_a_namespace_with_boundaries_that_are_none_has_no_bundles(http):
    bundles = {"numBundles": 1, "boundaries": ["0x10000000", "0x20000000"]}
    assert (await http("PUT", "namespaces/public/odd", {"bundles": bundles}))[0] == 204
    status, told = await http("GET", "non-persistent/public/odd/0x10000000_0x20000000")
    assert status == 500
    assert "Delete the namespace" in told


class Several:
    """A cluster in which other brokers have topics in memory."""

    def __init__(self):
        self.owner = None
        self.elsewhere = []
        self.asked = []
        self.deleted = []

    async def boundaries(self, namespace_name):
        await trio.lowlevel.checkpoint()
        return [*(each[:10] for each in RANGES), "0xffffffff"]

    async def owner_if_any(self, namespace_name, range_text):
        await trio.lowlevel.checkpoint()
        return self.owner

    async def non_persistent_topics(self, namespace_name, range_text=""):
        await trio.lowlevel.checkpoint()
        if isinstance(self.elsewhere, Exception):
            raise self.elsewhere
        self.asked.append(range_text)
        return [each for each in self.elsewhere if f"//{namespace_name}/" in each]

    async def ask(self, method, path, body):
        await trio.lowlevel.checkpoint()
        self.deleted.append((method, path))
        gone = path.removeprefix("/admin/v2/").partition("?")[0].replace("/", "://", 1)
        self.elsewhere = [each for each in self.elsewhere if each != gone]
        return 204, b""


@pytest.fixture
def cluster(broker):
    broker.admin.cluster = Several()
    return broker.admin.cluster


async def test_the_owner_of_a_bundle_lists_its_topics(http, broker, cluster):
    await load(http, "a")
    (mine,) = (each for each in RANGES if within(each, "a"))
    path = f"non-persistent/{NS}/{mine}"
    assert await http("GET", path) == (204, None)
    cluster.owner = Whereabouts(broker.service.ownership.this_broker)
    assert await http("GET", path) == (200, [full("a")])
    cluster.owner = Whereabouts(OTHER)
    response = await http.client.get(f"/admin/v2/{path}?x=y")
    assert response.status_code == 307
    assert response.headers["location"] == (
        f"http://other:8080/admin/v2/{path}?x=y&authoritative=true"
    )
    assert (await http("GET", f"non-persistent/{NS}/0x0_0x1"))[0] == 412
    assert (await http("GET", f"non-persistent/public/none/{mine}"))[0] == 404


@pytest.mark.parametrize(
    "path", [f"non-persistent/{NS}?", f"namespaces/{NS}/topics?mode=NON_PERSISTENT&"]
)
async def test_a_namespace_lists_the_topics_of_all_brokers(http, cluster, path):
    cluster.elsewhere = [full("__change_events"), full("a"), full("b")]
    assert await http("GET", path) == (200, [full("a"), full("b")])
    assert await http("GET", f"{path}includeSystemTopic=true") == (200, cluster.elsewhere)
    assert (await http("GET", path.replace("default", "none")))[0] == 404
    cluster.elsewhere = ServiceNotReady("The topics of bundle b are not known")
    assert await http("GET", path) == (503, "The topics of bundle b are not known")


async def test_stored_topics_are_listed_before_those_of_all_brokers(http, cluster):
    await load(http, "stored", domain="persistent")
    cluster.elsewhere = [full("a")]
    stored = f"persistent://{NS}/stored"
    assert await http("GET", f"namespaces/{NS}/topics?mode=ALL") == (200, [stored, full("a")])
    assert await http("GET", f"namespaces/{NS}/topics") == (200, [stored])


async def test_a_namespace_with_topics_on_other_brokers_is_not_empty(http, cluster):
    path = "namespaces/public/kept"
    await http("PUT", path)
    cluster.elsewhere = ["non-persistent://public/kept/a"]
    assert await http("DELETE", path) == (409, "Cannot delete non empty namespace")
    cluster.elsewhere = ServiceNotReady("The topics of bundle b are not known")
    assert (await http("DELETE", path))[0] == 503
    assert (await http("GET", path))[0] == 200
    cluster.elsewhere = ["non-persistent://public/kept/a"]
    await http("POST", "brokers/configuration/forceDeleteNamespaceAllowed/true")
    assert await http("DELETE", f"{path}?force=true") == (204, None)
    assert cluster.deleted == [("DELETE", "/admin/v2/non-persistent/public/kept/a?force=true")]
    assert (await http("GET", path))[0] == 404


async def test_topics_of_brokers_go_with_their_namespace_wherever_they_are(http, cluster):
    path = "namespaces/public/gone"
    await http("PUT", path)
    cluster.elsewhere = ["non-persistent://public/gone/__change_events"]
    assert await http("DELETE", path) == (204, None)
    assert cluster.deleted == [
        ("DELETE", "/admin/v2/non-persistent/public/gone/__change_events?force=true")
    ]


async def test_only_the_owner_of_the_bundle_is_asked_for_its_topics(http, cluster):
    cluster.elsewhere = [full("a")]
    (mine,) = (each for each in RANGES if within(each, "a"))
    assert await http("GET", f"non-persistent/{NS}?bundle={mine}") == (200, [full("a")])
    assert await http("GET", f"non-persistent/{NS}?bundle=%20") == (200, [full("a")])
    assert cluster.asked == [mine, ""]
