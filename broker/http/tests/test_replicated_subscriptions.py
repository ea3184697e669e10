"""`.../subscription/{name}/replicatedSubscriptionStatus`: stored, shown, and taken back."""

from broker.http.tests.test_topic_layouts import publish

T = "persistent/public/default"
FULL = "persistent://public/default"


def status_of(topic, subscription="s"):
    return f"{T}/{topic}/subscription/{subscription}/replicatedSubscriptionStatus"


async def shown(http, topic):
    row = (await http("GET", f"{T}/{topic}/stats"))[1]["subscriptions"]["s"]
    assert row["isReplicated"] is row["replicated"]
    return row["isReplicated"]


async def test_the_status_is_stored_and_taken_back(broker, http):
    await http("PUT", f"{T}/a")
    await http("PUT", f"{T}/a/subscription/s")
    await publish(broker, f"{FULL}/a", 1)
    for wanted in (True, True, False, True):
        assert await http("POST", status_of("a"), wanted) == (204, None)
        cursor = broker.service.topics[f"{FULL}/a"].subscriptions["s"].cursor
        assert not cursor.is_dirty
        for _ in range(2):
            assert await http("GET", status_of("a")) == (200, {f"{FULL}/a": wanted})
            assert await shown(http, "a") is wanted
            assert await http("PUT", f"{T}/a/unload") == (204, None)


async def test_other_properties_of_the_position_stay(broker, http):
    await http("PUT", f"{T}/a")
    await http("PUT", f"{T}/a/subscription/s")
    cursor = broker.service.topics[f"{FULL}/a"].subscriptions["s"].cursor
    cursor.position_properties = {"sequence": 7}
    for wanted in (True, False):
        assert await http("POST", status_of("a"), wanted) == (204, None)
        assert cursor.position_properties["sequence"] == 7


async def test_every_partition_has_a_status(http):
    await http("PUT", f"{T}/p/partitions", 2)
    await http("PUT", f"{T}/p/subscription/s")
    assert await http("POST", status_of("p"), True) == (204, None)
    assert await http("POST", status_of("p-partition-0"), False) == (204, None)
    assert await http("GET", status_of("p")) == (
        200,
        {f"{FULL}/p-partition-0": False, f"{FULL}/p-partition-1": True},
    )
    assert await http("GET", status_of("p-partition-1")) == (200, {f"{FULL}/p-partition-1": True})


async def test_a_new_partition_has_the_status_of_the_others(http):
    await http("PUT", f"{T}/p/partitions", 1)
    for name in ("s", "other"):
        await http("PUT", f"{T}/p/subscription/{name}")
    assert await http("POST", status_of("p"), True) == (204, None)
    assert await http("POST", f"{T}/p/partitions", 2) == (204, None)
    for name, wanted in (("s", True), ("other", False)):
        assert (await http("GET", status_of("p", name)))[1] == {
            f"{FULL}/p-partition-0": wanted,
            f"{FULL}/p-partition-1": wanted,
        }


async def test_what_has_no_status_is_refused(http):
    await http("PUT", f"{T}/a")
    await http("PUT", f"{T}/p/partitions", 2)
    await http("PUT", f"{T}/p-partition-0/subscription/s")
    for path in (status_of("a"), status_of("none"), status_of("p")):
        assert (await http("GET", path))[0] == 404
        assert (await http("POST", path, True))[0] == 404
    assert (await http("GET", status_of("p-partition-0")))[1] == {f"{FULL}/p-partition-0": True}
    light = status_of("a").replace("persistent", "non-persistent", 1)
    assert (await http("GET", light))[0] == 405
    assert (await http("POST", light, True))[0] == 405
    for path in (status_of("a"), light):
        assert (await http("POST", path))[0] == 400
        assert (await http("POST", path, [1]))[0] == 400


async def test_a_broadcast_is_not_replicated(http):
    await http("PUT", f"{T}/b")
    body = {"properties": {"vela.broadcast": "true"}}
    assert await http("PUT", f"{T}/b/subscription/s", body) == (204, None)
    assert await http("GET", status_of("b")) == (200, {f"{FULL}/b": False})
    assert await http("POST", status_of("b"), False) == (204, None)
    assert (await http("POST", status_of("b"), True))[0] == 405
