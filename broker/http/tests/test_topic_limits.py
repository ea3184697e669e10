"""The number of topics of a namespace, for administrators: Pulsar's statuses and texts."""

from __future__ import annotations

import pytest

N = "public/limited"
TOO_MANY = "Exceed maximum number of topics in namespace."


@pytest.fixture
async def topics(http):
    """Calls about topics of a namespace that has two of them."""
    await http("PUT", f"namespaces/{N}")
    for name in ("a", "b"):
        assert await http("PUT", f"persistent/{N}/{name}") == (204, None)
    return http


async def limit(http, value):
    assert await http("POST", f"namespaces/{N}/maxTopicsPerNamespace", value) == (204, None)


async def test_no_topic_is_made_above_the_limit(topics):
    await limit(topics, 2)
    assert await topics("PUT", f"persistent/{N}/c") == (409, TOO_MANY)
    for count in (1, 2):
        assert await topics("PUT", f"persistent/{N}/p/partitions", count) == (412, TOO_MANY)
    assert len((await topics("GET", f"persistent/{N}"))[1]) == 2
    await limit(topics, 3)
    assert await topics("PUT", f"persistent/{N}/p/partitions", 2) == (412, TOO_MANY)
    assert await topics("PUT", f"persistent/{N}/c") == (204, None)
    assert await topics("PUT", f"persistent/{N}/d") == (409, TOO_MANY)


async def test_topics_above_a_new_limit_stay(topics):
    await limit(topics, 1)
    assert len((await topics("GET", f"persistent/{N}"))[1]) == 2
    assert await topics("PUT", f"persistent/{N}/a") == (409, "This topic already exists")


async def test_topics_that_store_nothing_do_not_count(topics):
    await limit(topics, 1)
    for name in ("x", "y"):
        assert await topics("PUT", f"non-persistent/{N}/{name}") == (204, None)
    assert await topics("PUT", f"non-persistent/{N}/p/partitions", 2) == (412, TOO_MANY)


async def test_new_partitions_get_all_subscriptions_also_above_their_limit(topics):
    """A subscription without a place on one of them would miss its messages."""
    assert await topics("PUT", f"persistent/{N}/p/partitions", 1) == (204, None)
    for name in ("x", "y"):
        assert (await topics("PUT", f"persistent/{N}/p/subscription/{name}"))[0] == 204
    await topics("POST", f"namespaces/{N}/maxSubscriptionsPerTopic", 1)
    assert await topics("POST", f"persistent/{N}/p/partitions", 2) == (204, None)
    status, names = await topics("GET", f"persistent/{N}/p-partition-1/subscriptions")
    assert (status, sorted(names)) == (200, ["x", "y"])
    assert (await topics("PUT", f"persistent/{N}/p-partition-1/subscription/z"))[0] == 409
