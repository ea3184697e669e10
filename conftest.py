"""For the tests of all rooms: hypothesis judges what is computed, not how fast the machine is; and
with `VELA_COMPILED=1` compiled hot modules are what is tested (docs/testing.md)."""

import os

import pytest
from hypothesis import HealthCheck, settings

from native.hot_modules import SWITCH, USED, use_compiled

settings.register_profile("vela", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("vela")

if os.environ.get(SWITCH) == "1" and (runs := use_compiled()) != USED:
    raise pytest.UsageError(
        f"{SWITCH}=1 asks for compiled hot modules, but the tests would run {runs}"
    )
