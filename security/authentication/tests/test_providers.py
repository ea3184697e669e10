"""What a configuration without providers says."""

from __future__ import annotations

import structlog.testing

from security.authentication.config import AuthenticationConfig
from security.authentication.providers import authentication_of
from security.authentication.tests.tokens import NOW


async def never(url):
    raise AssertionError(url)


def test_a_server_to_which_nobody_can_log_in_says_so():
    with structlog.testing.capture_logs() as logs:
        authentication_of(AuthenticationConfig(), never, lambda: NOW, lambda: NOW)
    assert [each["log_level"] for each in logs] == ["warning"]
    assert "authenticationProviders is empty" in logs[0]["event"]
