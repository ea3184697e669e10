"""The keys of autorecovery, in files of ours and of BookKeeper's."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from autorecovery.config import AUTORECOVERY_KEYS, AutorecoveryConfig
from bookie.process.config import BookieProcessConfig
from ledgers.remote.tls_keys import ClientTlsConfig
from settings.reading import ConfigError, load_config, read_properties

ROOM = Path(__file__).resolve().parent.parent
CONF = ROOM.parent / "conf"
OWN = {field.name for field in fields(AutorecoveryConfig)} - {
    field.name for field in fields(BookieProcessConfig)
}


def load(tmp_path, text):
    path = tmp_path / "bookkeeper.conf"
    path.write_text(text)
    return load_config(AUTORECOVERY_KEYS, [path], {})


def test_the_shipped_files_offer_every_key_with_its_default():
    assert {each.key for each in read_properties(CONF / "autorecovery.conf")} == OWN
    files = [CONF / "bookkeeper.conf", CONF / "autorecovery.conf"]
    loaded = load_config(AUTORECOVERY_KEYS, files, {}, strict=True)
    assert (loaded.config, loaded.without_effect_count) == (AutorecoveryConfig(), 0)


def test_every_key_has_an_effect():
    text = "".join(path.read_text() for path in ROOM.glob("*.py") if path.name != "config.py")
    of_client = {field.name for field in fields(ClientTlsConfig)}
    assert [key for key in OWN - of_client if not re.search(rf"config\.{key}\b", text)] == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("auditorLedgerVerificationPercentage=101", "at most 100"),
        ("rereplicationEntryBatchSize=0", "at least 1"),
        ("zkEnableSecurity=true", "needs metadataStoreConfigPath"),
        ("lostBookieRecoveryDelayy=5", "did you mean 'lostBookieRecoveryDelay'"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, text, complaint):
    with pytest.raises(ConfigError, match=complaint) as caught:
        load(tmp_path, text + "\n")
    assert "\n" not in str(caught.value)


def test_a_key_that_vela_does_not_honour_is_told(tmp_path):
    loaded = load(tmp_path, "replicationRateByBytes=1000\n")
    assert [notice.text for notice in loaded.notices] == [
        "has no effect: copying is not slowed down"
    ]
