"""The id and the addresses of a bookie."""

import socket

import pytest

from bookie.errors import BookieRefusesToStart
from bookie.process.config import BookieProcessConfig
from bookie.process.identity import Identity, identity_of, interface_address


@pytest.fixture
def machine(monkeypatch):
    """A machine called `store7.example`, at 10.1.2.3."""
    addresses = {"store7.example": "10.1.2.3", "localhost": "127.0.0.1"}

    def address_of(name):
        if name in addresses:
            return addresses[name]
        if name[0].isdigit():
            return name
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getfqdn", lambda: "store7.example")
    monkeypatch.setattr(socket, "gethostbyname", address_of)
    return addresses


@pytest.mark.parametrize(
    ("keys", "identity"),
    [
        ({}, Identity("10.1.2.3:3181", "10.1.2.3", "0.0.0.0")),
        (
            {"useHostNameAsBookieID": True, "bookiePort": 4},
            Identity("store7.example:4", "store7.example", "0.0.0.0"),
        ),
        (
            {"useHostNameAsBookieID": True, "useShortHostName": True},
            Identity("store7:3181", "store7", "0.0.0.0"),
        ),
        (
            {"advertisedAddress": "b1.example", "useHostNameAsBookieID": True},
            Identity("b1.example:3181", "b1.example", "0.0.0.0"),
        ),
        ({"bookieId": "b-1"}, Identity("b-1", "10.1.2.3", "0.0.0.0")),
        ({"bindAddress": "10.9.9.9"}, Identity("10.1.2.3:3181", "10.1.2.3", "10.9.9.9")),
        (
            {"listeningInterface": "lo", "allowLoopback": True},
            Identity("127.0.0.1:3181", "127.0.0.1", "127.0.0.1"),
        ),
        # Nobody else is told of it, so nobody else need reach it.
        ({"advertisedAddress": "127.0.0.1"}, Identity("127.0.0.1:3181", "127.0.0.1", "127.0.0.1")),
        ({"advertisedAddress": "127.0.1.2"}, Identity("127.0.1.2:3181", "127.0.1.2", "127.0.1.2")),
        ({"advertisedAddress": "localhost"}, Identity("localhost:3181", "localhost", "127.0.0.1")),
    ],
)
def test_who_and_where(machine, keys, identity):
    assert identity_of(BookieProcessConfig(**keys)) == identity


@pytest.mark.parametrize(
    ("keys", "complaint"),
    [
        ({"listeningInterface": "lo"}, "only this machine reaches it"),
        ({"listeningInterface": "nosuch0"}, "listeningInterface=nosuch0"),
        ({"bookieId": "a/b"}, "cannot be the id"),
        ({"bookieId": "readonly"}, "cannot be the id"),
    ],
)
def test_what_clients_could_not_use_is_refused(machine, keys, complaint):
    with pytest.raises(BookieRefusesToStart, match=complaint):
        identity_of(BookieProcessConfig(**keys))


def test_a_machine_that_is_known_to_itself_only(machine):
    machine["store7.example"] = "127.0.1.1"
    with pytest.raises(BookieRefusesToStart, match="allowLoopback"):
        identity_of(BookieProcessConfig())
    found = identity_of(BookieProcessConfig(allowLoopback=True))
    assert found == Identity("127.0.1.1:3181", "127.0.1.1", "127.0.1.1")


def test_an_advertised_name_that_is_loopback_here_is_an_address_elsewhere(machine):
    """Debian gives a machine's own name as 127.0.1.1, to the machine alone."""
    machine["store7.example"] = "127.0.1.1"
    found = identity_of(BookieProcessConfig(advertisedAddress="store7.example"))
    assert found == Identity("store7.example:3181", "store7.example", "0.0.0.0")


def test_a_machine_without_an_address(machine):
    del machine["store7.example"]
    with pytest.raises(BookieRefusesToStart, match="advertisedAddress"):
        identity_of(BookieProcessConfig())


def test_an_interface_has_an_address():
    assert interface_address("lo") == "127.0.0.1"
