"""URLs of stores that processes share are compared by their places."""

import pytest

from metadata.opening import shared_place


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
        ("oxia://a:1/default", "cannot share"),
        ("unix:store.sock", "absolute"),
        ("zk:", "should name ZooKeeper"),
    ],
)
def test_stores_that_cannot_be_shared_are_refused(url, reason):
    with pytest.raises(ValueError, match=reason):
        shared_place(url)
