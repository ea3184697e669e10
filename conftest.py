"""For the tests of all rooms: hypothesis judges what is computed, not how fast the machine is. It
takes the same examples in each run until a test changes; the profile "many" takes new ones. Several
processes may share a run. With `VELA_COMPILED=1` compiled hot modules are what is tested
(docs/testing.md).

The garbage collector is off until the tests are collected. It then leaves out the objects that this
has made: they live to the end, and each full collection would walk a million of them.
"""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from native.hot_modules import SWITCH, USED, use_compiled
from tests.sharing import mark_scenarios, put_longest_first

if TYPE_CHECKING:
    from collections.abc import Generator

    from xdist.remote import Producer
    from xdist.scheduler import Scheduling

gc.disable()

settings.register_profile(
    "vela",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
settings.register_profile(
    "many", settings.get_profile("vela"), max_examples=2_000, derandomize=False
)
settings.load_profile("vela")

if os.environ.get(SWITCH) == "1" and (runs := use_compiled()) != USED:
    raise pytest.UsageError(
        f"{SWITCH}=1 asks for compiled hot modules, but the tests would run {runs}"
    )


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mark_scenarios(items)
    if hasattr(config, "workerinput"):
        put_longest_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Scheduling | None:
    if config.getoption("dist") != "loadfile":
        return None
    from tests.scheduling import GroupScheduling

    return GroupScheduling(config, log)
