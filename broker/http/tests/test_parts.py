"""Requests for a partitioned topic whose partitions have several owners."""

import json

import pytest
import trio

from protocol.errors import ServiceNotReady


class Unanswering:
    """A cluster in which the owner of one partition does not answer."""

    async def ask(self, method, path, body):
        await trio.lowlevel.checkpoint()
        if "parts-partition-1" in path:
            raise ServiceNotReady("Another broker does not answer: refused")
        return 204, b""


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "partitioned-stats"), ("PUT", "unload"), ("GET", "subscriptions")]
)
async def test_an_owner_that_does_not_answer_is_told(http, broker, method, path):
    topic = "persistent/public/default/parts"
    assert (await http("PUT", f"{topic}/partitions", 3))[0] == 204
    broker.admin.cluster = Unanswering()
    status, reason = await http(method, f"{topic}/{path}")
    assert (status, reason) == (503, "Another broker does not answer: refused")


class Owners:
    """A cluster whose partitions have two subscriptions, and that notes what is made."""

    def __init__(self):
        self.made = []

    async def ask(self, method, path, body):
        await trio.lowlevel.checkpoint()
        if method == "GET":
            rows = {"a": {"isReplicated": True}, "b": {"isReplicated": False}}
            return 200, json.dumps({"subscriptions": rows}).encode()
        self.made.append(path.partition("parts-")[2])
        return 204, b""


async def test_a_new_partition_gets_the_status_of_replication_of_other_owners(http, broker):
    topic = "persistent/public/default/parts"
    assert (await http("PUT", f"{topic}/partitions", 1))[0] == 204
    broker.admin.cluster = owners = Owners()
    assert (await http("POST", f"{topic}/partitions", 2))[0] == 204
    assert owners.made == [
        "partition-1/subscription/a?replicated=true",
        "partition-1/subscription/b",
    ]
