import pytest

from broker.topics.follow.shadow import source_of
from protocol.errors import BrokerError


def test_the_property_of_pulsar_names_the_source():
    name = "persistent://public/default/a"
    assert source_of({"PULSAR.SHADOW_SOURCE": name}).full == name
    assert source_of({"other": name}) is None
    assert source_of({"PULSAR.SHADOW_SOURCE": ""}) is None


@pytest.mark.parametrize("name", ["non-persistent://public/default/a", "a/b", "x://a/b/c"])
def test_a_source_that_cannot_be_one_is_refused(name):
    with pytest.raises(BrokerError):
        source_of({"PULSAR.SHADOW_SOURCE": name})
