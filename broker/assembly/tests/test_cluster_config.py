"""The configuration of `vela broker`: Pulsar's keys, and what they must name."""

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

from bookie.config import BookieConfig
from broker.assembly.cluster_config import (
    CLUSTER_KEYS,
    ClusterBrokerConfig,
    start_notices,
    store_url,
)
from broker.cluster.config import ClusterConfig
from ledgers.speculation import SpeculationRules
from settings.reading import ConfigError, load_config, read_properties

REPOSITORY = Path(__file__).resolve().parents[3]
STOCK = REPOSITORY / "conf" / "broker.conf"
OF_THE_BOOKIE = {field.name for field in fields(BookieConfig)} | {
    "bookieMaxConnections",
    "bookiePort",
    "maxBatchReadSize",
    "nettyMaxFrameSizeBytes",
}
NEEDED = {"metadataStoreUrl": "zk:127.0.0.1:2181", "clusterName": "pulsar-cluster"}


def load(**keys):
    environment = {f"PULSAR_PREFIX_{key}": value for key, value in keys.items()}
    return load_config(CLUSTER_KEYS, [], environment)


def refusal(**keys):
    with pytest.raises(ConfigError) as error:
        load(**keys)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_the_shipped_file_offers_every_key_of_a_broker_with_its_default():
    offered = {setting.key for setting in read_properties(STOCK)}
    assert offered == set(ClusterBrokerConfig.__dataclass_fields__) - OF_THE_BOOKIE
    loaded = load_config(CLUSTER_KEYS, [STOCK], {}, strict=True)
    assert loaded.config == ClusterBrokerConfig(**NEEDED)
    assert loaded.without_effect_count == 0


def test_every_key_of_the_cluster_reaches_the_part_that_it_is_for():
    config = ClusterBrokerConfig(**NEEDED | {"clusterName": ClusterConfig().clusterName})
    for field in fields(ClusterConfig):
        assert getattr(config, field.name) == getattr(ClusterConfig(), field.name), field.name
    changed = replace(
        config,
        loadBalancerNamespaceBundleMaxTopics=7,
        loadBalancerSheddingGracePeriodMinutes=3.0,
        metadataStoreSessionTimeoutMillis=6_000,
        bookkeeperClientTimeoutInSeconds=4,
        bookkeeperClientIsolationGroups=("a",),
        bookkeeperClientHealthCheckEnabled=False,
        bookkeeperClientQuarantineRatio=0.5,
        bookkeeper_delayEnsembleChange=True,
        bookkeeper_opportunisticStriping=True,
    )
    assert isinstance(changed, ClusterConfig)
    assert changed.loadBalancerNamespaceBundleMaxTopics == 7
    assert changed.loadBalancerSheddingGracePeriodMinutes == 3.0
    assert changed.doubt_seconds_max == 1.0
    assert changed.bookies().add_timeout_s == 4.0
    assert changed.placement().isolation_groups == {"a"}
    assert changed.placement().is_opportunistic
    assert not changed.quarantine().is_on
    assert changed.quarantine().ratio == 0.5
    assert changed.ledgers().request_timeout_s == 4.0
    assert changed.ledgers().delay_ensemble_change


def test_bookies_are_told_of_confirmed_entries_only_if_an_interval_is_set():
    key = "bookkeeperExplicitLacIntervalInMills"
    assert load(**NEEDED).config.ledgers().explicit_lac_interval_s == 0
    loaded = load(**NEEDED, **{key: "250"})
    assert loaded.notices == ()
    assert loaded.config.ledgers().explicit_lac_interval_s == 0.25
    assert "at least 0" in refusal(**NEEDED, **{key: "-1"})


def test_a_silent_bookie_is_waited_for_unless_a_time_is_set():
    key = "bookkeeperClientSpeculativeReadTimeoutInMillis"
    assert load(**NEEDED).config.ledgers().speculation.first_s == 0
    loaded = load(**NEEDED, **{key: "250"})
    assert loaded.notices == ()
    assert loaded.config.ledgers().speculation == SpeculationRules.every(0.25)
    assert "at least 0" in refusal(**NEEDED, **{key: "-1"})


def test_what_must_be_named_is_asked_for_in_one_line():
    assert "metadataStoreUrl is not set" in refusal(clusterName="c")
    assert "clusterName is not set" in refusal(metadataStoreUrl="zk:a:1")
    assert "should name" in refusal(**NEEDED | {"metadataStoreUrl": "zk:/path"})


@pytest.mark.parametrize("key", ["zookeeperServers", "zkServers"])
def test_older_names_of_the_store(key):
    config = load(clusterName="c", **{key: "a:1,b:2/chroot"}).config
    assert store_url(config) == "zk:a:1,b:2/chroot"


def test_places_that_are_one_are_accepted_and_others_refused():
    same = {
        "configurationMetadataStoreUrl": "zk:127.0.0.1:2181",
        "bookkeeperMetadataServiceUri": "zk+hierarchical://127.0.0.1:2181/ledgers",
    }
    assert load(**NEEDED, **same).notices == ()
    for key in same:
        text = refusal(**NEEDED, **{key: "zk:other:2181"})
        assert re.search(f"{key}=.* is another place than metadataStoreUrl", text)


def test_keys_of_a_bookie_are_named_because_they_have_no_effect():
    config = replace(ClusterBrokerConfig(**NEEDED), journalSyncData=False, bookiePort=3181)
    (notice,) = start_notices(config)
    assert "bookiePort, journalSyncData" in notice
    assert start_notices(ClusterBrokerConfig(**NEEDED)) == []
    (notice,) = start_notices(
        replace(
            ClusterBrokerConfig(**NEEDED),
            managedLedgerDefaultEnsembleSize=1,
            managedLedgerDefaultWriteQuorum=1,
            managedLedgerDefaultAckQuorum=1,
        )
    )
    assert "managedLedgerDefaultAckQuorum=1" in notice
