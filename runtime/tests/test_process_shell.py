"""The process of a server."""

from __future__ import annotations

import gc
from contextlib import asynccontextmanager

import pytest

from runtime.process_shell import run_server


class Refusal(Exception):
    pass


@pytest.fixture
def without_collection():
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("without_collection")
def test_garbage_of_a_server_is_collected_also_if_none_was_while_it_was_loaded():
    collects = []

    @asynccontextmanager
    async def server():
        collects.append(gc.isenabled())
        raise Refusal("seen")
        yield ""

    with pytest.raises(SystemExit):
        run_server("vela test", server, (Refusal,))
    assert collects == [True]
