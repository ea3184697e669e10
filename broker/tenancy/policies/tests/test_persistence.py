"""The bookies of a topic's entries: which numbers are accepted, and which are in force."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.ground.config import DEFAULT_CONFIG
from broker.ground.refusal import Refusal
from broker.tenancy.policies.effective import resolve
from broker.tenancy.policies.persistence import (
    Persistence,
    persistence,
    violated_quorum_rule,
)
from broker.tenancy.policies.record import Policies


def said(ensemble: object, write: object, ack: object, rate: object = 0.0) -> dict[str, object]:
    return {
        "bookkeeperEnsemble": ensemble,
        "bookkeeperWriteQuorum": write,
        "bookkeeperAckQuorum": ack,
        "managedLedgerMaxMarkDeleteRate": rate,
    }


def test_the_topic_comes_before_its_namespace_before_the_configuration():
    config = replace(
        DEFAULT_CONFIG,
        managedLedgerDefaultEnsembleSize=4,
        managedLedgerDefaultWriteQuorum=3,
        managedLedgerDefaultAckQuorum=2,
        managedLedgerDefaultMarkDeleteRateLimit=0.5,
    )
    fresh = Policies.fresh({}, config)
    assert resolve(config, fresh).persistence == Persistence(4, 3, 2, 0.5)
    namespace = fresh.with_fields(persistence=said(3, 2, 2))
    assert resolve(config, namespace).persistence == Persistence(3, 2, 2, 0.0)
    topic = {"persistence": said(5, 5, 3, 7.5)}
    assert resolve(config, namespace, topic).persistence == Persistence(5, 5, 3, 7.5)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, said(2, 2, 2)),
        ({"bookkeeperEnsemble": 3, "unknown": 1}, said(3, 2, 2)),
        (said("3", "2", 1.9, "2.5"), said(3, 2, 1, 2.5)),
        (said(5, 5, 5, -1), said(5, 5, 5, -1.0)),
        (said(" 3 ", "+2", 2, " 1.5e1 "), said(3, 2, 2, 15.0)),
        (said(1, 1, 1, ""), said(1, 1, 1, 0.0)),
    ],
)
def test_what_is_left_out_is_as_in_pulsar(given, kept):
    assert persistence("persistence", given) == kept


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (None, "persistence policies should not be null"),
        (said(0, 0, 0), "Bookkeeper-Ensemble must be <= 5 and > 0."),
        (said(6, 2, 2), "Bookkeeper-Ensemble must be <= 5 and > 0."),
        (said(2, 0, 0), "Bookkeeper-WriteQuorum must be <= 5 and > 0."),
        (said(3, 2, -1), "Bookkeeper-AckQuorum must be <= 5 and > 0."),
        (said(1, 2, 1), "Bookkeeper Ensemble (1) >= WriteQuorum (2) >= AckQuorum (1)"),
        (said(2, 2, 3), "Bookkeeper Ensemble (2) >= WriteQuorum (2) >= AckQuorum (3)"),
        (said(True, 1, 1), "bookkeeperEnsemble must be a whole number"),
        (said(1, "x", 1), "bookkeeperWriteQuorum must be a whole number"),
        (said(1, 1, 1, "nan"), "managedLedgerMaxMarkDeleteRate must be a number"),
        (said(1, 1, 1, []), "managedLedgerMaxMarkDeleteRate must be a number"),
        (said(1, 1, 1, "1_0"), "managedLedgerMaxMarkDeleteRate must be a number"),
        (said(1, 1, 1, "\u0663.5"), "managedLedgerMaxMarkDeleteRate must be a number"),
        (said(1, 1, 1, 10**400), "managedLedgerMaxMarkDeleteRate must be a number"),
        (said("0_3", 2, 2), "bookkeeperEnsemble must be a whole number"),
        (said("\u0663", 2, 2), "bookkeeperEnsemble must be a whole number"),
        ([], "persistence must be a JSON object"),
    ],
)
def test_wrong_numbers_are_refused_with_the_texts_of_pulsar(given, text):
    with pytest.raises(Refusal) as refused:
        persistence("persistence", given)
    assert (refused.value.status, refused.value.reason) == (400, text)


def test_a_configuration_with_more_acks_than_copies_is_told():
    config = replace(DEFAULT_CONFIG, managedLedgerDefaultAckQuorum=2)
    assert "found 1, 1, 2" in violated_quorum_rule(config)
    assert not violated_quorum_rule(DEFAULT_CONFIG)
