"""What metrics count of credentials: by provider, and by Pulsar's reasons."""

from __future__ import annotations

import base64

import pytest

from security.authentication.certificate import CertificateProvider
from security.authentication.config import AuthenticationConfig
from security.authentication.counts import MINUTES_LEFT
from security.authentication.identity import AuthenticationFailed, Evidence
from security.authentication.openid import OpenIDProvider
from security.authentication.providers import PROVIDER_CLASSES, authentication_of
from security.authentication.tests.tokens import NOW, SECRET, token

TOKEN = "AuthenticationProviderToken", "token"
BASIC = "AuthenticationProviderBasic", "basic"
USERS = base64.b64encode(b"u:$apr1$lsoGYSpi$.XgEcuMv8XMZSSqXwMEzG.\n").decode()


@pytest.fixture
def authentication():
    secret = base64.b64encode(SECRET).decode()
    config = AuthenticationConfig(
        authenticationProviders=tuple(PROVIDER_CLASSES[:3]),
        tokenSecretKey=f"data:;base64,{secret}",
        tokenAudienceClaim="aud",
        tokenAudience="us",
        basicAuthConf=f"data:;base64,{USERS}",
    )

    async def nothing(url):
        raise AssertionError(url)

    return authentication_of(config, nothing, lambda: NOW, lambda: NOW)


async def attempt(authentication, method, data):
    try:
        await authentication.of_connection(method, Evidence(data))
    except AuthenticationFailed:
        pass


async def test_acceptance_is_counted_by_provider_and_method(authentication):
    for _ in range(2):
        await attempt(authentication, "token", token(aud="us").encode())
    assert authentication.counts.succeeded == {TOKEN: 2}
    assert not authentication.counts.failed


@pytest.mark.parametrize(
    ("method", "data", "reason"),
    [
        ("token", b"", (*TOKEN, "INVALID_AUTH_DATA")),
        ("token", b"abc", (*TOKEN, "INVALID_TOKEN")),
        ("token", token(aud="us", exp=NOW - 5).encode(), (*TOKEN, "INVALID_TOKEN")),
        ("token", token(aud="them").encode(), (*TOKEN, "INVALID_AUDIENCES")),
        ("basic", b"none", (*BASIC, "INVALID_AUTH_DATA")),
        ("basic", b"nobody:x", (*BASIC, "INVALID_AUTH_DATA")),
        ("basic", b"u:x", (*BASIC, "INVALID_TOKEN")),
        ("tls", b"", ("AuthenticationProviderTls", "tls", "INVALID_CERTS")),
    ],
)
async def test_refusals_are_counted_by_pulsars_reason(authentication, method, data, reason):
    await attempt(authentication, method, data)
    assert authentication.counts.failed == {reason: 1}
    assert authentication.counts.expired == (b"." in data and reason[2] == "INVALID_TOKEN")


async def test_a_method_that_nobody_has_is_counted_by_nobody(authentication):
    await attempt(authentication, "sasl", b"x")
    assert not authentication.counts.failed


async def test_tokens_are_counted_by_the_minutes_until_their_end(authentication):
    for seconds in (1, 300, 301, 10 * 365 * 86_400):
        await attempt(authentication, "token", token(aud="us", exp=NOW + seconds).encode())
    await attempt(authentication, "token", token(aud="us").encode())
    counts = authentication.counts
    assert counts.watches_expiry
    assert counts.minutes_left == [2, 1, *[0] * (len(MINUTES_LEFT) - 2), 1]


def test_every_reason_is_one_of_pulsar():
    assert set(OpenIDProvider.reasons.values()) <= {
        "UNSUPPORTED_ISSUER",
        "UNSUPPORTED_ALGORITHM",
        "ISSUER_MISMATCH",
        "ALGORITHM_MISMATCH",
        "INVALID_PUBLIC_KEY",
        "ERROR_RETRIEVING_PROVIDER_METADATA",
        "ERROR_RETRIEVING_PUBLIC_KEY",
        "ERROR_DECODING_JWT",
        "ERROR_VERIFYING_JWT",
        "ERROR_VERIFYING_JWT_SIGNATURE",
        "INVALID_JWT_CLAIM",
        "EXPIRED_JWT",
    }
    assert set(CertificateProvider.reasons.values()) == {"UNKNOWN", "INVALID_CERTS", "INVALID_CN"}
