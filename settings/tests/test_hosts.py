"""Hosts that clients are given."""

import pytest

from settings.hosts import violated_host_rule


@pytest.mark.parametrize(
    "host", ["", "broker-1", "broker_1.example.org", "a.b.", "10.0.0.1", "::1", "fe80::1%eth0"]
)
def test_a_name_or_an_address_is_a_host(host):
    assert violated_host_rule("advertisedAddress", host) == ""


@pytest.mark.parametrize(
    "text",
    [
        "http://x:80/",
        "x:80",
        "x/",
        "[::1]",
        "a,b",
        "a b",
        "-a",
        "a..b",
        "1.2.3.400",
        "256",
        "x" * 64,
        "b\u00fccher",
    ],
)
def test_anything_else_is_refused_by_its_key(text):
    assert violated_host_rule("advertisedAddress", text).startswith(f"advertisedAddress={text!r}")
