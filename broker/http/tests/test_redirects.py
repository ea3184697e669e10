"""Requests for topics of other brokers go to them."""

import pytest
import trio

from broker.peers.broker_address import BrokerAddress
from broker.peers.ownership import Whereabouts
from protocol.errors import ServiceNotReady

OTHER = BrokerAddress("pulsar://other:6650", "http://other:8080")


class Elsewhere:
    """Topics of `public/default` are not served here."""

    def __init__(self, this_broker, answer):
        self.this_broker = this_broker
        self.answer = answer
        self.asked = []

    def serves(self, topic):
        return topic.namespace_name != "public/default"

    async def owner_of(self, topic, *, authoritative=False):
        await trio.lowlevel.checkpoint()
        self.asked.append(authoritative)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def elsewhere(broker):
    def answer(answer):
        service = broker.service
        service.ownership = Elsewhere(service.ownership.this_broker, answer)
        return service.ownership

    return answer


async def location(http, method, path):
    response = await http.client.request(method, path)
    assert response.status_code == 307
    assert response.content == b""
    return response.headers["location"]


@pytest.mark.parametrize(
    ("method", "path", "there"),
    [
        ("PUT", "public/default/t%20x", "public/default/t%20x?"),
        (
            "GET",
            "public/default/t/stats?getPreciseBacklog=true",
            "public/default/t/stats?getPreciseBacklog=true&",
        ),
        ("GET", "public/default/t/stats?authoritative=false&x=1", "public/default/t/stats?x=1&"),
        ("PUT", "public/default/t/unload", "public/default/t/unload?"),
        (
            "POST",
            "public/default/t/subscription/s%2Fx/skip_all",
            "public/default/t/subscription/s%2Fx/skip_all?",
        ),
    ],
)
@pytest.mark.parametrize("authoritative", [True, False])
async def test_the_owner_is_asked_the_same(http, elsewhere, method, path, there, authoritative):
    elsewhere(Whereabouts(OTHER, authoritative=authoritative))
    assert await location(http, method, f"/admin/v2/persistent/{path}") == (
        f"http://other:8080/admin/v2/persistent/{there}authoritative={str(authoritative).lower()}"
    )


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "schema"), ("GET", "schema/0"), ("POST", "schema"), ("DELETE", "schema")],
)
async def test_the_owner_of_a_topic_answers_for_its_schema(http, elsewhere, method, path):
    elsewhere(Whereabouts(OTHER))
    asked = f"/admin/v2/schemas/public/default/t/{path}"
    assert await location(http, method, asked) == f"http://other:8080{asked}?authoritative=true"


async def test_a_topic_without_an_owner_is_refused(http, elsewhere):
    elsewhere(ServiceNotReady("is being unloaded"))
    status, reason = await http("GET", "persistent/public/default/t/stats")
    assert status == 412
    assert reason.startswith("Can't find owner for topic persistent://public/default/t")


async def test_partitioned_topics_and_other_namespaces_are_answered_here(http, elsewhere):
    await http("PUT", "persistent/public/default/parts/partitions", 2)
    elsewhere(Whereabouts(OTHER))
    assert (await http("GET", "persistent/public/default/parts/partitions"))[0] == 200
    assert (await http("GET", "persistent/public/default"))[0] == 200
    assert (await http("PUT", "persistent/pulsar/system/t"))[0] == 204
    assert await location(
        http, "GET", "/admin/v2/persistent/public/default/parts-partition-1/stats"
    )


async def test_a_lookup_is_sent_on_with_what_the_next_broker_has_to_know(http, elsewhere):
    ownership = elsewhere(Whereabouts(OTHER, is_redirect=True, authoritative=True))
    path = "/lookup/v2/topic/persistent/public/default"
    assert await location(http, "GET", f"{path}/t%20x") == (
        f"http://other:8080{path}/t+x?authoritative=true"
    )
    ownership.answer = Whereabouts(OTHER, is_redirect=True, authoritative=False)
    assert await location(http, "GET", f"{path}/t?authoritative=true&listenerName=") == (
        f"http://other:8080{path}/t?authoritative=false&listenerName="
    )
    assert ownership.asked == [False, True]


async def test_a_lookup_names_another_owner(http, elsewhere):
    elsewhere(Whereabouts(OTHER))
    status, answer = await http("GET", "/lookup/v2/topic/persistent/public/default/t")
    assert status == 200
    assert (answer["brokerUrl"], answer["httpUrl"]) == ("pulsar://other:6650", "http://other:8080")
