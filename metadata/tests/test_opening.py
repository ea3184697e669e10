"""URLs of stores that processes share are compared by their places."""

import pytest
import trio
from structlog.testing import capture_logs

from metadata.opening import open_store, shared_place
from runtime.testing.conditions import eventually


def test_the_same_place_has_several_urls():
    zookeeper = shared_place("zk:a:1,b:2/pulsar")
    for url in ("zk://a:1,b:2/pulsar", "a:1,b:2/pulsar", "metadata-store:zk:a:1,b:2/pulsar/"):
        assert shared_place(url) == zookeeper
    assert shared_place("unix:/run/a.sock") == shared_place("metadata-store:unix:/run/a.sock")
    assert len({zookeeper, shared_place("zk:a:1,b:2"), shared_place("unix:/run/a.sock")}) == 3


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("rocksdb:/data/metadata", "cannot share"),
        ("memory:", "cannot share"),
        ("oxia://a:1/default", "no oxia store. Use ZooKeeper"),
        ("unix:store.sock", "absolute"),
        ("zk:", "should name ZooKeeper"),
    ],
)
def test_stores_that_cannot_be_shared_are_refused(url, reason):
    with pytest.raises(ValueError, match=reason):
        shared_place(url)


@pytest.mark.parametrize("url", ["zk:127.0.0.1:1/chroot", "unix:/nowhere/a.sock"])
async def test_the_wait_for_a_store_that_does_not_answer_is_said_before_it(url):
    with capture_logs() as lines:

        def waits():
            return [each for each in lines if each["event"] == "waiting for the metadata store"]

        async with trio.open_nursery() as nursery:
            nursery.start_soon(open_store, url, 10.0)
            await eventually(waits)
            nursery.cancel_scope.cancel()
    (line,) = waits()
    assert (line["url"], line["seconds_max"]) == (url, 30.0)
