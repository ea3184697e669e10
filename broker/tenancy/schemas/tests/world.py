"""A store and a bookie in memory, and the registries of brokers on them."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from broker.ground.config import DEFAULT_CONFIG
from broker.tenancy.schemas.registry import SchemaRegistry
from ledgers.client import LedgerClient, LedgerClientConfig
from ledgers.tests.fake_bookie import FakeBookie
from runtime.clock import SystemClock

_bookies: WeakKeyDictionary = WeakKeyDictionary()


def bookie_of(store):
    """The bookie whose ledgers are in this store."""
    return _bookies.setdefault(store, FakeBookie())


def client_on(store, bookie=None):
    """A new client of the store's ledgers, as a broker that has just started has."""
    return LedgerClient(
        store, {"b": bookie or bookie_of(store)}, LedgerClientConfig(), SystemClock()
    )


def registry_on(store, config=DEFAULT_CONFIG, bookie=None):
    """The registry of a broker that has just started."""
    return SchemaRegistry(store, client_on(store, bookie), SystemClock(), config)
