"""Each child gets the keys that the user gave, at ports and directories of its own."""

from dataclasses import fields

import pytest

from autorecovery.config import AUTORECOVERY_KEYS
from bookie.process.config import BOOKIE_KEYS
from broker.assembly.cluster_config import CLUSTER_KEYS, ClusterBrokerConfig
from cli.machine.plan import (
    OF_AUTORECOVERY,
    autorecovery_keys,
    bookie_keys,
    broker_keys,
    broker_ports,
    child_environment,
    read_machine,
)
from settings.reading import ConfigError, Setting, load_config

SOCKET = "/data/run/metadata.sock"

_CLASSES = "org.apache.pulsar."
CREDENTIALS = {
    "authenticationEnabled": "true",
    "authenticationProviders": f"{_CLASSES}broker.authentication.AuthenticationProviderToken",
    "tokenSecretKey": "data:;base64,MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=",
    "superUserRoles": "broker",
    "brokerClientAuthenticationPlugin": f"{_CLASSES}client.impl.auth.AuthenticationToken",
    "brokerClientAuthenticationParameters": "token:any",
}


def settings(**keys):
    return [Setting(key, value, "test") for key, value in keys.items()]


def machine_of(brokers, bookies, overrides=None, **keys):
    return read_machine(brokers, bookies, settings(**keys), overrides or {}, SOCKET, strict=True)[0]


def broker_config(machine, number):
    keys = broker_keys(machine, broker_ports(machine, number))
    return load_config(CLUSTER_KEYS, [], child_environment({}, keys), strict=True).config


def bookie_config(machine, number):
    keys = bookie_keys(machine, number, "/data")
    return load_config(BOOKIE_KEYS, [], child_environment({}, keys), strict=True).config


def autorecovery_config(machine):
    keys = autorecovery_keys(machine)
    return load_config(AUTORECOVERY_KEYS, [], child_environment({}, keys), strict=True).config


def test_bookies_serve_metrics_at_ports_of_their_own_where_that_is_wanted():
    def served(port):
        machine, _ = read_machine(1, 2, [], {}, SOCKET, strict=True, bookie_metrics_port=port)
        configs = [bookie_config(machine, number) for number in (1, 2)]
        return [
            each.prometheusStatsHttpPort
            for each in configs
            if "prometheus" in each.statsProviderClass.lower()
        ]

    assert served(None) == []
    assert served(9000) == [9000, 9001]
    assert served(0) == [0, 0]


def test_children_have_ports_and_directories_of_their_own_and_one_store():
    machine = machine_of(2, 2)
    brokers = [broker_config(machine, number) for number in (1, 2)]
    bookies = [bookie_config(machine, number) for number in (1, 2)]
    assert [(each.brokerServicePort, each.webServicePort) for each in brokers] == [
        (6650, 8080),
        (6651, 8081),
    ]
    assert [each.bookiePort for each in bookies] == [3181, 3182]
    assert [each.bookieId for each in bookies] == ["vela-embedded", "vela-bookie-2"]
    assert [each.journalDirectories for each in bookies] == [
        ("/data/bookkeeper/journal",),
        ("/data/bookkeeper2/journal",),
    ]
    assert {each.metadataStoreUrl for each in brokers} == {f"unix:{SOCKET}"}
    assert {each.metadataServiceUri for each in bookies} == {f"metadata-store:unix:{SOCKET}"}
    assert {each.bindAddress for each in (*brokers, *bookies)} == {"127.0.0.1"}
    assert {each.clusterName for each in brokers} == {"standalone"}


def test_options_and_keys_reach_the_children_that_they_concern():
    options = {"brokerServicePort": 7000, "webServicePort": None, "bindAddress": "0.0.0.0"}
    machine = machine_of(
        2,
        1,
        options,
        maxMessageSize="1000",
        journalMaxSizeMB="77",
        brokerDeduplicationEnabled="true",
        loadBalancerSheddingIntervalMinutes="0.5",
        webServiceAllowedHosts="a.example,b.example",
        bookiePort="4000",
    )
    broker, bookie = broker_config(machine, 2), bookie_config(machine, 1)
    assert (broker.brokerServicePort, broker.webServicePort) == (7001, 8081)
    assert broker.bindAddress == "0.0.0.0"
    assert broker.maxMessageSize == 1000
    assert broker.brokerDeduplicationEnabled
    assert broker.loadBalancerSheddingIntervalMinutes == 0.5
    assert broker.webServiceAllowedHosts == ("a.example", "b.example")
    assert bookie.journalMaxSizeMB == 77
    assert bookie.bookiePort == 4000
    assert bookie.bindAddress == "127.0.0.1"
    assert broker.journalMaxSizeMB != 77


def test_port_0_is_0_for_all():
    machine = machine_of(2, 2, {"brokerServicePort": 0, "webServicePort": 0}, bookiePort="0")
    assert broker_ports(machine, 2) == {"brokerServicePort": 0, "webServicePort": 0}
    assert bookie_config(machine, 2).bookiePort == 0


@pytest.mark.parametrize(
    ("bookies", "given", "sizes", "notices"),
    [
        (1, {}, (1, 1, 1), 0),
        (3, {}, (2, 2, 2), 0),
        (3, {"managedLedgerDefaultEnsembleSize": "1"}, (1, 1, 1), 0),
        (
            2,
            {"managedLedgerDefaultEnsembleSize": "3", "managedLedgerDefaultAckQuorum": "1"},
            (2, 2, 1),
            1,
        ),
    ],
)
def test_ensembles_are_no_larger_than_the_machine(bookies, given, sizes, notices):
    machine = machine_of(1, bookies, **given)
    config = broker_config(machine, 1)
    assert sizes == (
        config.managedLedgerDefaultEnsembleSize,
        config.managedLedgerDefaultWriteQuorum,
        config.managedLedgerDefaultAckQuorum,
    )
    assert len(machine.notices) == notices


def test_with_zookeeper_bookies_are_known_by_their_addresses():
    machine = machine_of(2, 2, metadataStoreUrl="zk:a:1/x", bindAddress="10.0.0.1")
    assert not machine.is_store_ours
    bookie = bookie_config(machine, 2)
    assert (bookie.bookieId, bookie.bindAddress) == ("", "10.0.0.1")
    assert bookie.metadataServiceUri == "metadata-store:zk:a:1/x"


@pytest.mark.parametrize(
    ("bookies", "keys", "reason"),
    [
        (2, {"journalDirectories": "/a"}, "journalDirectories names directories of one bookie"),
        (1, {"managedLedgerDefaultEnsembleSize": "x"}, "managedLedgerDefaultEnsembleSize"),
        (1, {"metadataStoreUrl": "oxia://a:1/x"}, "oxia"),
        (1, {"tlsEnabled": "true"}, "brokerServicePortTls"),
        (1, {"advertisedListeners": "a:pulsar://b:1"}, "leave it out with --brokers 2"),
        (
            2,
            {
                "bookkeeperTLSClientAuthentication": "true",
                "bookkeeperTLSCertificateFilePath": "/c",
                "bookkeeperTLSKeyFilePath": "/k",
                "bookkeeperTLSTrustCertsFilePath": "/t",
            },
            "the bookies of `vela standalone` have no TLS",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(bookies, keys, reason):
    with pytest.raises(ConfigError, match=reason):
        machine_of(2, bookies, **keys)


def test_autorecovery_runs_where_there_is_another_bookie_for_a_copy():
    assert machine_of(2, 1).autorecovery is None
    config = autorecovery_config(machine_of(1, 2))
    assert config.metadataServiceUri == f"metadata-store:unix:{SOCKET}"
    assert config.bookieId == "vela-autorecovery-127.0.0.1"
    assert config.lostBookieRecoveryDelay == 60


@pytest.mark.parametrize(("value", "runs"), [("false", False), ("true", True), ("", True)])
def test_autorecovery_can_be_switched_off(value, runs):
    machine = machine_of(1, 2, autoRecoveryDaemonEnabled=value)
    assert (machine.autorecovery is not None) is runs
    assert not any(
        notice.setting.key == "autoRecoveryDaemonEnabled"
        for notice in read_machine(
            1, 2, settings(autoRecoveryDaemonEnabled=value), {}, SOCKET, strict=True
        )[1].notices
    )


def test_keys_of_autorecovery_reach_it_and_are_no_keys_of_brokers():
    machine = machine_of(
        1, 3, lostBookieRecoveryDelay="0", auditorPeriodicCheckInterval="7", maxMessageSize="1000"
    )
    config = autorecovery_config(machine)
    assert (config.lostBookieRecoveryDelay, config.auditorPeriodicCheckInterval) == (0, 7)
    assert broker_config(machine, 1).maxMessageSize == 1000
    assert not {field.name for field in fields(ClusterBrokerConfig)} & OF_AUTORECOVERY
    with pytest.raises(ConfigError, match="auditorLedgerVerificationPercentage"):
        machine_of(1, 3, auditorLedgerVerificationPercentage="101")


def test_autorecovery_of_several_machines_is_known_by_its_host():
    machine = machine_of(1, 2, metadataStoreUrl="zk:a:1/x", advertisedAddress="10.0.0.1")
    config = autorecovery_config(machine)
    assert config.bookieId == "vela-autorecovery-10.0.0.1"
    assert config.metadataServiceUri == "metadata-store:zk:a:1/x"


def test_variables_of_the_parent_do_not_overrule_the_keys_of_a_child():
    environment = {"PATH": "/bin", "PULSAR_PREFIX_brokerServicePort": "1"}
    assert child_environment(environment, {"webServicePort": "2"}) == {
        "PATH": "/bin",
        "PULSAR_PREFIX_webServicePort": "2",
    }


def notices_of(machine):
    return [each for each in machine.notices if "fence all ledgers" in each]


def test_bookies_have_sockets_instead_of_ports_where_brokers_ask_for_credentials():
    assert bookie_config(machine_of(1, 2), 1).bookieSocketPath == ""
    machine = machine_of(1, 2, **CREDENTIALS)
    assert [bookie_config(machine, number).bookieSocketPath for number in (1, 2)] == [
        "/data/run/bookie-1.sock",
        "/data/run/bookie-2.sock",
    ]
    assert notices_of(machine) == []
    assert bookie_config(machine_of(1, 2, bookiePort="-1", **CREDENTIALS), 1).bookieSocketPath


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"bookiePort": "3181"}, "Leave bookiePort out"),
        ({"bookiePort": "0"}, "at 127.0.0.1 "),
        ({"metadataStoreUrl": "zk:a:1/x"}, "`vela bookie` with TLS asks for certificates"),
        ({"metadataStoreUrl": "zk:a:1/x", "bindAddress": "10.0.0.1"}, "at 10.0.0.1 "),
    ],
)
def test_ports_of_bookies_are_named_where_brokers_ask_for_credentials(keys, said):
    machine = machine_of(1, 2, **keys, **CREDENTIALS)
    assert bookie_config(machine, 1).bookieSocketPath == ""
    [notice] = notices_of(machine)
    assert said in notice
    assert notices_of(machine_of(1, 2, **keys)) == []
