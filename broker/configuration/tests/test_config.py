"""Configuration: what is accepted, what is refused, and with which line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from broker.configuration.config_file import load_config
from broker.ground.config import DEFAULT_CONFIG, BrokerConfig
from settings.reading import ConfigError, Setting, as_properties, read_properties

REPOSITORY = Path(__file__).parents[3]
DECLARED_IN = (
    REPOSITORY / "broker" / "ground" / "config.py",
    REPOSITORY / "security" / "authentication" / "config.py",
)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "test.conf"
    path.write_text(text, encoding="utf-8")
    return path


def test_file_then_environment_then_command_line(tmp_path: Path):
    path = write(tmp_path, "# comment\n\nmaxMessageSize = 1000\nkeepAliveIntervalSeconds=5\n")
    environment = {"PULSAR_PREFIX_maxMessageSize": "2000", "HOME": "/"}
    loaded = load_config([path], environment, {"brokerServicePort": 0, "webServicePort": None})
    assert loaded.config.maxMessageSize == 2000
    assert loaded.config.keepAliveIntervalSeconds == 5
    assert loaded.config.brokerServicePort == 0
    assert loaded.config.webServicePort == DEFAULT_CONFIG.webServicePort


def test_blank_means_the_default(tmp_path: Path):
    path = write(tmp_path, "maxMessageSize=\nclusterName=\njournalDirectories=\n")
    assert load_config([path], {}).config == DEFAULT_CONFIG


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("journalSyncDta=true", "unknown key 'journalSyncDta' (did you mean 'journalSyncData'?)"),
        ("authenticationEnabld=true", "security or durability depends on authenticationEnabled"),
        ("bindAdress=127.0.0.1", "security or durability depends on bindAddress"),
        ("maxMessageSize=5MB", "expected a whole number of at least 1"),
        ("maxConcurrentTopicLoadRequest=0", "expected a whole number of at least 1"),
        ("maxMessageSize=67043329", "at most 67043328"),
        ("maxMessageSize=0", "expected a whole number of at least 1"),
        ("webServicePort=70000", "at most 65535"),
        ("allowAutoTopicCreation=yes", "expected true or false"),
        ("allowAutoTopicCreationType=x", "expected one of non-partitioned, partitioned"),
        ("minorCompactionThreshold=nan", "expected a number of at least 0 and at most 1"),
        ("transactionCoordinatorEnabled=true", "is not supported: Vela has no transactions yet"),
        ("= words", "expected key=value"),
    ],
)
def test_a_mistake_is_one_line_that_names_place_and_key(tmp_path: Path, line: str, complaint: str):
    path = write(tmp_path, f"# first\n{line}\n")
    with pytest.raises(ConfigError) as caught:
        load_config([path], {})
    text = str(caught.value)
    assert text.startswith(f"{path}:2: ")
    assert complaint in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("more", "complaint"),
    [
        ("", "authorizationEnabled=true needs authenticationEnabled=true"),
        (
            "authenticationEnabled=true\nauthorizationProvider=org.example.Mine\n",
            "authorizationProvider='org.example.Mine' is not one that Vela has",
        ),
        (
            "authenticationEnabled=true\nauthorizationProvider="
            "org.apache.pulsar.broker.authorization.MultiRolesTokenAuthorizationProvider\n",
            "MultiRolesTokenAuthorizationProvider' is not one that Vela has",
        ),
    ],
)
def test_authorization_that_cannot_be_had_is_refused(tmp_path: Path, more: str, complaint: str):
    path = write(tmp_path, f"authorizationEnabled=true\n{more}")
    with pytest.raises(ConfigError) as caught:
        load_config([path], {})
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_several_bind_addresses_are_refused_with_what_to_set(tmp_path: Path):
    path = write(tmp_path, "bindAddresses=internal:pulsar://0.0.0.0:6650\n")
    with pytest.raises(ConfigError, match="set bindAddress, the ports, and internalListenerName"):
        load_config([path], {})
    assert load_config([write(tmp_path, "bindAddresses=\n")], {}).config == DEFAULT_CONFIG


def test_an_unknown_key_is_told_with_the_nearest_known_one(tmp_path: Path):
    path = write(tmp_path, "maxMesageSize=1\nzzz=1\nqqq=2\n")
    loaded = load_config([path], {})
    assert loaded.config == DEFAULT_CONFIG
    [notice] = loaded.notices
    assert notice.setting == Setting("maxMesageSize", "1", f"{path}:1")
    assert notice.text == "unknown key, ignored (did you mean 'maxMessageSize'?)"
    assert loaded.unknown == ("zzz", "qqq")


@pytest.mark.parametrize("line", ["maxMesageSize=1", "zzz=1"])
def test_an_unknown_key_is_refused_when_strict(tmp_path: Path, line: str):
    path = write(tmp_path, f"{line}\n")
    with pytest.raises(ConfigError, match="refused, because of --strict-config"):
        load_config([path], {}, strict=True)


def test_a_misspelt_variable_is_told_or_refused_like_a_line():
    loaded = load_config([], {"PULSAR_PREFIX_maxMesageSize": "1"})
    assert loaded.notices[0].setting.source == "PULSAR_PREFIX_maxMesageSize"
    with pytest.raises(ConfigError, match="PULSAR_PREFIX_journalSyncDta: unknown key"):
        load_config([], {"PULSAR_PREFIX_journalSyncDta": "true"})


def test_the_log_does_not_show_secrets():
    shown = Setting("tlsKeyStorePassword", "open sesame", "a.conf:1").shown_value
    assert "sesame" not in shown
    assert Setting("numIOThreads", "8", "a.conf:1").shown_value == "8"


def test_a_file_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot read"):
        load_config([tmp_path / "missing.conf"], {})


def test_quorums_must_fit_each_other():
    with pytest.raises(ConfigError, match="must hold, found 1, 2, 1"):
        load_config([], {"PULSAR_PREFIX_managedLedgerDefaultWriteQuorum": "2"})


def test_known_keys_without_effect_are_accepted_and_reported(tmp_path: Path):
    path = write(
        tmp_path, "numIOThreads=\nloadBalancerEnabled=true\nloadBalancerDebugModeEnabled=true\n"
    )
    loaded = load_config([path], {})
    assert loaded.without_effect_count == 3
    told = [(notice.setting.key, notice.text) for notice in loaded.notices]
    assert told == [("loadBalancerDebugModeEnabled", "has no effect")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("managedLedgerCacheCopyEntries=true", "every entry has memory of its own"),
        ("numAddWorkerThreads=8", "the event loop adds entries"),
    ],
)
def test_why_a_key_has_no_effect_is_told(tmp_path: Path, line: str, reason: str):
    [notice] = load_config([write(tmp_path, line + "\n")], {}).notices
    assert notice.text.startswith(f"has no effect: {reason}")


def test_policies_of_topics_can_be_switched_off(tmp_path: Path):
    assert load_config([write(tmp_path, "")], {}).config.topicLevelPoliciesEnabled
    loaded = load_config([write(tmp_path, "topicLevelPoliciesEnabled=false\n")], {})
    assert not loaded.config.topicLevelPoliciesEnabled
    assert not loaded.notices


def test_old_key_names_are_understood(tmp_path: Path):
    path = write(tmp_path, "journalDirectory=/a\n")
    assert load_config([path], {}).config.journalDirectories == ("/a",)
    path = write(tmp_path, "journalDirectory=/a\njournalDirectories=/b,/c\n")
    assert load_config([path], {}).config.journalDirectories == ("/b", "/c")


@pytest.mark.parametrize(
    ("lines", "most"),
    [
        ("ToPersistInZooKeeper=7", 7),
        ("ToPersistInZooKeeper=7 ToPersistInMetadataStore=9", 7),
        ("ToPersistInMetadataStore=9 ToPersistInZooKeeper=7", 7),
        ("ToPersistInMetadataStore=9 ToPersistInZooKeeper=-1", 9),
        ("ToPersistInMetadataStore=9 ToPersistInZooKeeper=", 9),
    ],
)
def test_an_older_name_counts_where_it_does_in_pulsar(tmp_path: Path, lines: str, most: int):
    text = "".join(f"managedLedgerMaxUnackedRanges{line}\n" for line in lines.split())
    config = load_config([write(tmp_path, text)], {}).config
    assert config.managedLedgerMaxUnackedRangesToPersistInMetadataStore == most


def test_a_negative_limit_is_no_limit(tmp_path: Path):
    path = write(tmp_path, "maxProducersPerTopic=-1\nmaxMessagePublishBufferSizeInMB=-1\n")
    config = load_config([path], {}).config
    assert (config.maxProducersPerTopic, config.maxMessagePublishBufferSizeInMB) == (0, 0)


def test_compaction_that_is_off_need_not_fit_the_other(tmp_path: Path):
    path = write(tmp_path, "majorCompactionThreshold=0\n")
    assert load_config([path], {}).config.majorCompactionThreshold == 0


def test_the_shipped_file_holds_only_keys_with_an_effect():
    path = REPOSITORY / "conf" / "standalone.conf"
    for setting in read_properties(path):
        assert setting.key in BrokerConfig.__dataclass_fields__, setting
    assert load_config([path], {}).without_effect_count == 0


def test_every_key_is_shown_as_pulsar_prints_it():
    properties = as_properties(DEFAULT_CONFIG)
    assert properties["allowAutoTopicCreation"] == "true"
    assert set(properties) == set(BrokerConfig.__dataclass_fields__)
    assert not [name for name in properties if re.fullmatch(r"[a-z_]+_[a-z_]+", name)]


def test_conf_offers_every_key_with_its_default():
    standalone = REPOSITORY / "conf" / "standalone.conf"
    offered = {setting.key for setting in read_properties(standalone)}
    assert offered == set(BrokerConfig.__dataclass_fields__)
    given = load_config([standalone], {}).config
    changed = {key for key in offered if getattr(given, key) != getattr(DEFAULT_CONFIG, key)}
    assert changed == {
        "backlogQuotaDefaultLimitGB",
        "gcWaitTime",
        "diskUsageThreshold",
        "diskUsageWarnThreshold",
    }


def test_every_key_has_an_effect():
    """A key that nothing reads is one of upstream's only, and is reported as such."""
    words = {
        word
        for room in ("broker", "cli", "bookie", "security")
        for path in (REPOSITORY / room).rglob("*.py")
        if "tests" not in path.parts and path not in DECLARED_IN
        for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))
    }
    assert [key for key in BrokerConfig.__dataclass_fields__ if key not in words] == []
