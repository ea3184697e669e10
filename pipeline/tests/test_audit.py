"""Which subscriptions an operator must look at."""

from __future__ import annotations

import pytest

from pipeline.audit import rows_of, state_of, summary

UUID = "0f3c9d52-5b8e-4a55-9a0f-6d1f0a3c2b11"


@pytest.mark.parametrize(
    ("name", "consumers", "backlog", "rate", "state"),
    [
        ("app", 1, 5, 3.0, "ok"),
        ("app", 1, 5, 0.0, "stuck"),
        ("app", 0, 5, 0.0, "abandoned"),
        ("app", 0, 0, 0.0, "ok"),
        (f"spar-pulsar-{UUID}-persistent://public/default/a", 0, 0, 0.0, "leaked"),
        (f"spark-pulsar-batch-{UUID}-persistent://public/default/a", 0, 9, 0.0, "leaked"),
        (f"spark-vela-{UUID}", 0, 9, 0.0, "leaked"),
        ("spark-team", 0, 9, 0.0, "abandoned"),
    ],
)
def test_states(name: str, consumers: int, backlog: int, rate: float, state: str) -> None:
    found = state_of(name, durable=True, consumers=consumers, backlog=backlog, rate_out=rate)

    assert found == state


def test_a_reader_is_nobodys_leak() -> None:
    assert state_of("reader-1", durable=False, consumers=0, backlog=9, rate_out=0.0) == "ok"


def test_the_summary_puts_the_largest_backlog_first() -> None:
    stats = {
        "subscriptions": {
            "small": {"type": "Shared", "msgBacklog": 3, "consumers": []},
            "large": {"type": "Shared", "msgBacklog": 30, "consumers": []},
            "fine": {"type": "Shared", "msgBacklog": 0, "consumers": [{}]},
        }
    }

    result = summary(rows_of("t", stats))

    assert [row["subscription"] for row in result["findings"]] == ["large", "small"]
    assert result["by_state"] == {"abandoned": 2, "ok": 1}
    assert result["backlog"] == 33
