"""Safeguards taken out of the production classes, each of which a simulation must miss."""

from __future__ import annotations

from contextlib import contextmanager

import trio

from bookie.api import BookieError, Status
from bookie.bookie import Bookie
from broker.cluster.session import ClusterSession
from ledgers.ensemble_acks import EnsembleAcks


async def _fence_in_memory_only(self, ledger_id, master_key):
    """`Bookie.fence_ledger` that answers before the fence is durable, and never writes it."""
    self._check_usable()
    if not master_key or ledger_id < 0:
        raise BookieError(Status.UNAUTHORIZED, "fencing needs a ledger id and its master key")
    handle = self._layout.handle_of(ledger_id)
    self._adds.journal_key(handle, master_key)
    handle.fenced = True
    handle.update_guard()
    await trio.lowlevel.checkpoint()


def _confirmed_out_of_order(self, end):
    """`EnsembleAcks.confirmed` that looks at the last acknowledged entry, not at those before."""
    for entry_id in range(end - 1, -1, -1):
        if self._count(entry_id) >= self._ack:
            return entry_id
    return -1


MUTATIONS = {
    "fence": (Bookie, "fence_ledger", _fence_in_memory_only),
    "order": (EnsembleAcks, "confirmed", _confirmed_out_of_order),
    "session": (ClusterSession, "is_live", property(lambda self: True)),
}
"""What can be taken out: durable fences, confirmation in order, the check of the session."""


@contextmanager
def without(name):
    """The safeguard of this name is missing; nothing is missing without a name."""
    if not name:
        yield
        return
    owner, attribute, replacement = MUTATIONS[name]
    before = owner.__dict__[attribute]
    setattr(owner, attribute, replacement)
    try:
        yield
    finally:
        setattr(owner, attribute, before)
