"""Which Host and Origin are served."""

from __future__ import annotations

import pytest

from web.callers import CallerRules
from web.errors import RequestRefused

OWN = ("10.0.0.7", "broker.example.com", "machine")
LOCAL = "10.0.0.7"
JSON = {"content-type": "application/json"}


def status(method, headers, allowed=(), local=LOCAL):
    """0 if it is served, else the status."""
    try:
        CallerRules(OWN, allowed).check(method, headers, local)
    except RequestRefused as refusal:
        return refusal.status
    return 0


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.9.9.9", "[::1]:8080", "10.0.0.7:8080"]
    + ["broker.example.com", "Broker.Example.com.:8080", "machine", "[::ffff:10.0.0.7]:8080"],
)
def test_own_names_and_addresses_are_served(host):
    assert status("GET", {"host": host}) == 0
    assert status("POST", {"host": host, **JSON}) == 0


@pytest.mark.parametrize(
    "host",
    ["rebound.attacker.test", "localhost.attacker.test", "10.0.0.8", "example.com", "0x7f.1"]
    + ["127.0.0.1.attacker.test:8080", "[::2]:8080", "notlocalhost", "0.0.0.0:8080"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_name_that_is_not_the_brokers_is_misdirected(host, method):
    assert status(method, {"host": host}) == 421


@pytest.mark.parametrize(
    "headers", [{"host": "foreign"}, {"host": "localhost", "origin": "https://foreign"}]
)
def test_a_refusal_names_the_key(headers):
    with pytest.raises(RequestRefused, match=r"foreign.*webServiceAllowedHosts"):
        CallerRules(OWN, ()).check("POST", headers, LOCAL)


@pytest.mark.parametrize("host", ["", " ", "a b", "user@localhost", "localhost/x", "loc\u00e4l"])
def test_a_host_that_is_none_is_malformed(host):
    assert status("GET", {"host": host}) == 400


def test_http_1_0_may_leave_the_host_out():
    assert status("GET", {}) == 0


@pytest.mark.parametrize(
    ("allowed", "host", "served"),
    [
        (["proxy.example.org"], "proxy.example.org:443", True),
        (["proxy.example.org:443"], "proxy.example.org", True),
        (["Proxy.Example.org"], "proxy.example.org", True),
        (["*.example.org"], "proxy.example.org", True),
        (["*.example.org"], "a.b.example.org", True),
        (["*.example.org"], "example.org", False),
        (["*.example.org"], "badexample.org", False),
        (["proxy.example.org"], "other.example.org", False),
        (["192.0.2.1"], "192.0.2.1:8080", True),
        (["*"], "anything", True),
    ],
)
def test_listed_hosts_are_served(allowed, host, served):
    assert status("GET", {"host": host}, allowed) == (0 if served else 421)


HERE = {"host": "localhost:8080", **JSON}


@pytest.mark.parametrize(
    "foreign",
    [
        {"origin": "https://attacker.test"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://localhost:3000"},
        {"origin": "http://localhost"},
        {"origin": "http://localhost:8080.attacker.test"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://attacker.test", "sec-fetch-site": "same-origin"},
    ],
)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "QUERY"])
def test_a_foreign_page_may_not_write(foreign, method):
    assert status(method, HERE | foreign) == 403


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
def test_a_foreign_page_may_read_what_browsers_then_hide_from_it(method):
    assert status(method, HERE | {"origin": "https://attacker.test"}) == 0


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"origin": "http://localhost:8080", "sec-fetch-site": "same-origin"},
        {"origin": "https://localhost:8080"},
        {"sec-fetch-site": "none"},
    ],
)
def test_clients_and_own_pages_may_write(own):
    assert status("POST", HERE | own) == 0


def test_the_default_port_need_not_be_named():
    headers = {"host": "broker.example.com", "origin": "http://broker.example.com"}
    assert status("POST", headers | JSON) == 0
    assert status("POST", headers | {"host": "broker.example.com:80"} | JSON) == 0
    headers["origin"] = "https://broker.example.com:443"
    assert status("POST", headers | JSON) == 0


def test_pages_of_listed_hosts_may_write():
    console = {"origin": "https://console.example.org", "sec-fetch-site": "cross-site"}
    assert status("POST", HERE | console) == 403
    assert status("POST", HERE | console, ["console.example.org"]) == 0


@pytest.mark.parametrize(
    "form",
    ["text/plain", "Text/Plain;charset=UTF-8", "application/x-www-form-urlencoded"]
    + ["multipart/form-data; boundary=x"],
)
def test_a_post_that_a_form_can_send_is_refused(form):
    assert status("POST", HERE | {"content-type": form}) == 415
    assert status("PUT", HERE | {"content-type": form}) == 0, "no form sends PUT"


def test_a_post_without_content_is_served():
    assert status("POST", {"host": "localhost"}) == 0
