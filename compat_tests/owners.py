"""Which broker of a cluster of Vela owns a topic, and topics that a given broker owns."""

import urllib.error
import urllib.request

import pytest

from compat_tests.oracle.vela_cluster import SESSION_MS

SESSION_SECONDS = SESSION_MS / 1000
NAMESPACE = "public/default"


def persistent(topic, rest=""):
    return f"/admin/v2/persistent/{NAMESPACE}/{topic}{rest}"


def owner_of(cluster, topic, asked=None):
    """The broker that owns a topic, whichever is asked."""
    asked = asked or next(each for each in cluster.brokers if each.is_running())
    status, answer = asked.http("GET", f"/lookup/v2/topic/persistent/{NAMESPACE}/{topic}")
    assert status == 200, answer
    return cluster.broker_at(answer["brokerUrl"])


def owned_by(cluster, broker, topics):
    return [topic for topic in topics if owner_of(cluster, topic) is broker]


def bundle_of(broker, topic):
    path = f"/lookup/v2/topic/persistent/{NAMESPACE}/{topic}/bundle"
    status, text = broker.http("GET", path)
    assert status == 200
    return text


def topic_on(cluster, broker, prefix):
    """A topic of this broker."""
    names = (f"{prefix}-{number}" for number in range(100))
    return next(name for name in names if owner_of(cluster, name) is broker)


def other_than(cluster, broker):
    return next(each for each in cluster.brokers if each is not broker and each.is_running())


class NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments):
        return None


def location(broker, method, path):
    """Where a request is sent."""
    request = urllib.request.Request(broker.web_url + path, method=method)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.build_opener(NoRedirects).open(request, timeout=10)
    with refused.value as answer:
        assert answer.code == 307
        return answer.headers["Location"]
