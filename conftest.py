"""For the tests of all rooms: hypothesis judges what is computed, not how fast the machine is."""

from hypothesis import HealthCheck, settings

settings.register_profile("vela", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("vela")
