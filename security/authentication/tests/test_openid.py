"""Tokens of issuers that publish their keys."""

from __future__ import annotations

import dataclasses
import json

import pytest
import trio
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from security.authentication.config import AuthenticationConfig
from security.authentication.identity import AuthenticationFailed, Evidence, ProviderRefused
from security.authentication.openid import openid_provider
from security.authentication.published_keys import FAILURE_PAUSE_SECONDS
from security.authentication.tests.tokens import NOW, SECRET, ec_key, part, rsa_key, token

ISSUER = "https://issuer.test"
OTHER = "https://other.test/realm"
CONFIG = AuthenticationConfig(
    openIDAllowedTokenIssuers=(ISSUER, OTHER), openIDAllowedAudiences=("vela", "pulsar")
)


def jwk(private, key_id: str, algorithm: str) -> dict[str, object]:
    kind = RSAAlgorithm if algorithm.startswith("RS") else ECAlgorithm
    entry = kind.to_jwk(private.public_key(), as_dict=True)
    return {**entry, "kid": key_id, "alg": algorithm, "use": "sig"}


class Issuers:
    """What issuers publish, and how often they were asked."""

    def __init__(self) -> None:
        self.keys = [jwk(rsa_key(), "a", "RS256"), jwk(ec_key(), "e", "ES256")]
        self.documents: dict[str, bytes] = {}
        self.asked = 0
        self.fails = False
        self.seconds = 0.0

    async def fetch(self, url: str) -> bytes:
        self.asked += 1
        await trio.sleep(self.seconds)
        if self.fails:
            raise AuthenticationFailed("the issuer does not answer")
        if url in self.documents:
            return self.documents[url]
        for issuer in (ISSUER, OTHER):
            if url == f"{issuer}/.well-known/openid-configuration":
                return json.dumps({"issuer": issuer, "jwks_uri": f"{issuer}/keys"}).encode()
            if url == f"{issuer}/keys":
                return json.dumps({"keys": self.keys}).encode()
        raise AuthenticationFailed(f"nothing at {url}")


class World:
    def __init__(self, **keys: object) -> None:
        self.now = NOW
        self.set_by = 0.0
        self.issuers = Issuers()
        config = dataclasses.replace(CONFIG, **keys)
        self.provider = openid_provider(
            config,
            self.issuers.fetch,
            wall_seconds=lambda: self.now + self.set_by,
            now=lambda: self.now,
        )

    async def role_of(self, text: str) -> str:
        return (await self.provider.authenticate(Evidence(text.encode()))).role

    async def refusal_of(self, text: str) -> str:
        with pytest.raises(AuthenticationFailed) as caught:
            await self.provider.authenticate(Evidence(text.encode()))
        assert text not in str(caught.value)
        return str(caught.value)


def issued(private=None, algorithm="RS256", kid="a", **claims) -> str:
    given = {"iss": ISSUER, "aud": "vela", "iat": NOW, "nbf": NOW, "exp": NOW + 3600, **claims}
    given = {name: value for name, value in given.items() if value is not None}
    headers = {} if kid is None else {"kid": kid}
    return token(private or rsa_key(), algorithm, headers, **given)


async def test_tokens_of_several_issuers_are_accepted():
    world = World()
    assert await world.role_of(issued()) == "alice"
    assert await world.role_of(issued(iss=OTHER, sub="bob", aud=["x", "pulsar"])) == "bob"
    assert await world.role_of(issued(ec_key(), "ES256", "e")) == "alice"


async def test_a_key_that_names_no_algorithm_verifies_those_of_its_kind():
    world = World()
    world.issuers.keys = [
        {name: value for name, value in jwk(key, key_id, algorithm).items() if name != "alg"}
        for key, key_id, algorithm in ((rsa_key(), "a", "RS256"), (ec_key(), "e", "ES256"))
    ]
    assert await world.role_of(issued()) == "alice"
    assert await world.role_of(issued(algorithm="RS512")) == "alice"
    assert await world.role_of(issued(ec_key(), "ES256", "e")) == "alice"
    await world.refusal_of(issued(algorithm="PS256"))
    await world.refusal_of(issued(SECRET, "HS256"))


async def test_keys_are_fetched_once():
    world = World()
    for _ in range(5):
        await world.role_of(issued())
    assert world.issuers.asked == 2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (lambda: issued(iss="https://foreign.test"), "issuer of the token is not allowed"),
        (lambda: issued(iss=None), "issuer of the token is not allowed"),
        (lambda: issued(iss=["https://issuer.test"]), "issuer of the token is not allowed"),
        (lambda: issued(kid=None), "names no key"),
        (lambda: issued(kid="unknown"), "no key with the id"),
        (lambda: issued(kid="e"), "algorithm of the token is not that of its key"),
        (lambda: issued(algorithm="RS384"), "algorithm of the token is not that of its key"),
        (lambda: issued(algorithm="PS256"), "algorithm of the token is not that of its key"),
        (lambda: issued(SECRET, "HS256"), "algorithm of the token is not that of its key"),
        (lambda: issued(rsa_key(3072)), "signature"),
        (lambda: issued(aud="elsewhere"), "not for this broker"),
        (lambda: issued(exp=NOW - 1), "expired"),
        (lambda: issued(nbf=NOW + 1), "not valid yet"),
        (lambda: issued(iat=NOW + 1), "issued in the future"),
        (lambda: issued(exp=None), "lacks the claim exp"),
        (lambda: issued(nbf=None), "lacks the claim nbf"),
        (lambda: issued(iat=None), "lacks the claim iat"),
    ],
)
async def test_other_tokens_are_refused(text, reason):
    assert reason in await World().refusal_of(text())


@pytest.mark.parametrize("algorithm", [[], {}, None, 5, ["RS256"], True])
async def test_an_algorithm_that_is_no_text_is_refused(algorithm):
    header, payload, signature = issued().split(".")
    header = part({"alg": algorithm, "kid": "a"})
    assert "algorithm" in await World().refusal_of(f"{header}.{payload}.{signature}")


async def test_members_of_private_and_enormous_keys_are_not_looked_at():
    world = World()
    entry = jwk(rsa_key(), "a", "RS256")
    enormous = part(b"\x07" * 100_000)
    world.issuers.keys = [
        {**entry, "kid": "b", "n": enormous},
        {**entry, "kid": "c", "e": enormous},
        {**entry, "kid": "d", "n": [entry["n"]]},
        {**entry, "d": enormous},
    ]
    assert await world.role_of(issued()) == "alice"
    for key_id in ("b", "c", "d"):
        assert "no key with the id" in await world.refusal_of(issued(kid=key_id))


async def test_nothing_is_fetched_for_a_foreign_issuer():
    world = World()
    await world.refusal_of(issued(iss="https://169.254.169.254"))
    assert world.issuers.asked == 0


async def test_wrong_key_ids_do_not_have_the_issuer_asked_again_and_again():
    world = World()
    for index in range(100):
        await world.refusal_of(issued(kid=f"wrong-{index}"))
    assert world.issuers.asked == 2


async def test_a_new_key_is_found_after_a_while():
    world = World()
    await world.role_of(issued())
    world.issuers.keys = [jwk(rsa_key(3072), "b", "RS256")]
    await world.refusal_of(issued(rsa_key(3072), kid="b"))
    world.now += CONFIG.openIDKeyIdCacheMissRefreshSeconds + 1
    assert await world.role_of(issued(rsa_key(3072), kid="b")) == "alice"
    await world.refusal_of(issued())


async def test_old_keys_count_while_the_issuer_fails_and_then_no_more():
    world = World()
    await world.role_of(issued())
    world.issuers.fails = True
    world.now += CONFIG.openIDCacheRefreshAfterWriteSeconds + 1
    assert await world.role_of(issued(exp=world.now + 1)) == "alice"
    world.now = NOW + CONFIG.openIDCacheExpirationSeconds + 1
    await world.refusal_of(issued(exp=world.now + 1))


async def test_an_issuer_that_fails_is_asked_again_after_a_pause():
    world = World()
    world.issuers.fails = True
    for _ in range(10):
        await world.refusal_of(issued())
    assert world.issuers.asked == 1
    world.issuers.fails = False
    world.now += FAILURE_PAUSE_SECONDS
    assert await world.role_of(issued()) == "alice"


@pytest.mark.parametrize("set_by", [-3600.0, 3600.0])
async def test_an_issuer_is_asked_as_often_whatever_the_wall_clock_is_set_to(set_by):
    world = World()
    world.issuers.fails = True
    await world.refusal_of(issued())
    world.issuers.fails = False
    world.set_by = set_by
    lasting = {"iat": NOW - 7200, "nbf": NOW - 7200, "exp": NOW + 7200}
    await world.refusal_of(issued(**lasting))
    world.now += FAILURE_PAUSE_SECONDS
    assert await world.role_of(issued(**lasting)) == "alice"
    asked = world.issuers.asked
    world.set_by = 0.0
    await world.refusal_of(issued(kid="b", **lasting))
    assert world.issuers.asked == asked
    world.set_by = set_by
    world.now += CONFIG.openIDKeyIdCacheMissRefreshSeconds + 1
    await world.refusal_of(issued(kid="b", **lasting))
    assert world.issuers.asked == asked + 2


async def test_all_that_need_the_keys_wait_for_one_fetch(autojump_clock):
    world = World()
    world.issuers.seconds = 1.0
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(world.role_of, issued())
    assert world.issuers.asked == 2


async def test_issuers_that_are_kept_are_bounded():
    world = World(openIDCacheSize=1)
    for _ in range(3):
        await world.role_of(issued())
        await world.role_of(issued(iss=OTHER))
    assert world.issuers.asked == 12


DISCOVERY = f"{ISSUER}/.well-known/openid-configuration"


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b"\xff",
        b"{}",
        json.dumps({"issuer": OTHER, "jwks_uri": f"{ISSUER}/keys"}).encode(),
        json.dumps({"issuer": ISSUER}).encode(),
        json.dumps({"issuer": ISSUER, "jwks_uri": "file:///etc/passwd"}).encode(),
        json.dumps({"issuer": ISSUER, "jwks_uri": "http://issuer.test/keys"}).encode(),
    ],
)
async def test_a_wrong_description_gives_no_keys(document):
    world = World()
    world.issuers.documents[DISCOVERY] = document
    await world.refusal_of(issued())


@pytest.mark.parametrize(
    "keys",
    [
        None,
        [None, 5, []],
        [{"kid": "a"}],
        [{"kid": "a", "kty": "oct", "k": "AAAA", "alg": "HS256"}],
        [{"kid": "a", "kty": "RSA", "alg": "RS256", "n": "", "e": ""}],
        [{"kid": "a", "kty": "RSA", "alg": "none"}],
        [{"kid": "a", "kty": "RSA", "n": 5, "e": []}],
        [{"kid": "a", "kty": {}, "alg": []}],
        [{**jwk(rsa_key(), "a", "RS256"), "alg": ["RS256"]}],
        [jwk(rsa_key(1024), "a", "RS256")],
        [{"kid": 5, "kty": "RSA", "alg": "RS256"}],
        [{"kid": "a", "kty": "EC", "alg": "ES256", "crv": "P-256", "x": "AA", "y": "AA"}],
    ],
)
async def test_odd_keys_verify_nothing(keys):
    world = World()
    world.issuers.documents[f"{ISSUER}/keys"] = json.dumps({"keys": keys}).encode()
    await world.refusal_of(issued())


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"openIDAllowedTokenIssuers": ()}, "needs openIDAllowedTokenIssuers"),
        ({"openIDAllowedAudiences": ()}, "needs openIDAllowedAudiences"),
        ({"openIDAllowedTokenIssuers": ("http://issuer.test",)}, "is not an https URL"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(keys, line):
    with pytest.raises(ProviderRefused, match=line):
        World(**keys)


async def test_the_role_may_be_in_another_claim():
    world = World(openIDRoleClaim="client")
    assert await world.role_of(issued(client="carol")) == "carol"
    await world.refusal_of(issued())
