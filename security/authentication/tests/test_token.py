"""Tokens: which are accepted, as whom, until when. Any change of a token makes it invalid."""

from __future__ import annotations

import base64
import dataclasses
import hmac

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from security.authentication.config import AuthenticationConfig
from security.authentication.identity import AuthenticationFailed, Evidence, ProviderRefused
from security.authentication.tests.tokens import (
    NOW,
    SECRET,
    ec_key,
    part,
    public_bytes,
    rsa_key,
    signed_by_hand,
    token,
    unsigned,
)
from security.authentication.token import TOKEN_BYTES_MAX, token_provider

DEFAULT = AuthenticationConfig(tokenSecretKey="data:;base64," + base64.b64encode(SECRET).decode())


def data_url(data: bytes) -> str:
    return "data:;base64," + base64.b64encode(data).decode()


def provider(now: float = NOW, config: AuthenticationConfig = DEFAULT, **keys):
    return token_provider(dataclasses.replace(config, **keys), lambda: now)


def of_public(private, **keys):
    return provider(tokenSecretKey="", tokenPublicKey=data_url(public_bytes(private)), **keys)


async def role_of(tested, text: str) -> str:
    return (await tested.authenticate(Evidence(text.encode()))).role


async def refusal_of(tested, text: str) -> str:
    with pytest.raises(AuthenticationFailed) as caught:
        await tested.authenticate(Evidence(text.encode()))
    assert not text.strip() or text not in str(caught.value)
    return str(caught.value)


async def test_a_token_gives_its_role_and_its_end():
    identity = await provider().authenticate(Evidence(token(exp=NOW + 60).encode()))
    assert (identity.role, identity.method, identity.expires_at) == ("alice", "token", NOW + 60)
    identity = await provider().authenticate(Evidence(token().encode()))
    assert identity.expires_at is None


ORIGINAL = token(exp=NOW + 60)


@given(st.data())
def test_any_mutated_token_is_refused(data):
    tested = provider()
    at = data.draw(st.integers(0, len(ORIGINAL) - 1))
    inserted = data.draw(st.text(st.characters(codec="latin-1"), max_size=3))
    removed = data.draw(st.integers(0, 3))
    mutated = ORIGINAL[:at] + inserted + ORIGINAL[at + removed :]
    if mutated.strip() == ORIGINAL:
        return
    coroutine = tested.authenticate(Evidence(mutated.encode("latin-1")))
    with pytest.raises(AuthenticationFailed):
        coroutine.send(None)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_as_a_token(data):
    coroutine = provider().authenticate(Evidence(data))
    with pytest.raises(AuthenticationFailed):
        coroutine.send(None)


@pytest.mark.parametrize("spelling", ["none", "None", "NONE", "", None, 5, ["HS256"], {}])
async def test_a_token_without_a_signature_is_refused(spelling):
    text = unsigned(spelling)
    for end in ("", "AA", part(b"")):
        await refusal_of(provider(), text + end)
        await refusal_of(of_public(rsa_key()), text + end)
    await refusal_of(provider(), signed_by_hand(SECRET, {"alg": spelling}, {"sub": "alice"}))


@pytest.mark.parametrize("algorithm", ["HS256", "RS256"])
async def test_a_public_key_is_no_secret(algorithm):
    """The classic attack: the public key, which everybody has, as the key of an HMAC."""
    for encoding in (Encoding.DER, Encoding.PEM):
        secret = public_bytes(rsa_key(), encoding)
        text = signed_by_hand(secret, {"alg": algorithm}, {"sub": "admin"})
        await refusal_of(of_public(rsa_key()), text)


async def test_a_foreign_key_is_refused():
    foreign = token(bytes(32))
    assert "signature" in await refusal_of(provider(), foreign)
    assert "signature" in await refusal_of(of_public(rsa_key()), token(rsa_key(3072), "RS256"))


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
async def test_an_rsa_key_verifies_its_algorithms(algorithm):
    assert await role_of(of_public(rsa_key()), token(rsa_key(), algorithm)) == "alice"


@pytest.mark.parametrize(
    ("curve", "algorithm"),
    [(ec.SECP256R1, "ES256"), (ec.SECP384R1, "ES384"), (ec.SECP521R1, "ES512")],
)
async def test_a_curve_verifies_its_algorithm(curve, algorithm):
    tested = of_public(ec_key(curve), tokenPublicAlg=algorithm)
    assert await role_of(tested, token(ec_key(curve), algorithm)) == "alice"
    await refusal_of(tested, token(rsa_key(), "RS256"))


@pytest.mark.parametrize(("size", "algorithms"), [(32, 1), (48, 2), (64, 3)])
async def test_a_secret_verifies_what_it_is_long_enough_for(size, algorithms):
    tested = provider(tokenSecretKey=data_url(bytes(size)))
    for index, bits in enumerate((256, 384, 512)):
        header = {"alg": f"HS{bits}"}
        claims = {"sub": "alice"}
        text = f"{part(header)}.{part(claims)}"
        signed = f"{text}.{part(hmac.digest(bytes(size), text.encode(), f'sha{bits}'))}"
        if index < algorithms:
            assert await role_of(tested, signed) == "alice"
        else:
            await refusal_of(tested, signed)


@pytest.mark.parametrize(
    ("claims", "refusal"),
    [
        ({"exp": NOW}, None),
        ({"exp": NOW - 1}, "expired"),
        ({"nbf": NOW}, None),
        ({"nbf": NOW + 1}, "not valid yet"),
        ({"exp": "soon"}, "no time"),
        ({"exp": True}, "no time"),
        ({"exp": float("inf")}, "no time"),
        ({"exp": 10**400}, "no time"),
        ({"exp": -(10**400)}, "no time"),
        ({"nbf": float("nan")}, "no time"),
        ({"exp": [NOW + 60]}, "no time"),
        ({"sub": "\ud800"}, "no role"),
        ({"sub": ""}, "no role"),
        ({"sub": 7}, "no role"),
        ({"sub": ["bob", "carol"]}, None),
        ({"sub": []}, "no role"),
        ({"iat": NOW + 1000}, None),
    ],
)
async def test_what_a_token_says(claims, refusal):
    text = signed_by_hand(SECRET, {"alg": "HS256"}, {"sub": "alice", **claims})
    if refusal is None:
        expected = claims.get("sub", "alice")
        expected = expected[0] if isinstance(expected, list) else expected
        assert await role_of(provider(), text) == expected
    else:
        assert refusal in await refusal_of(provider(), text)


async def test_clocks_may_differ_by_the_allowed_skew():
    tested = provider(tokenAllowedClockSkewSeconds=5)
    assert await role_of(tested, token(exp=NOW - 5)) == "alice"
    await refusal_of(tested, token(exp=NOW - 6))
    assert await role_of(tested, token(nbf=NOW + 5)) == "alice"
    await refusal_of(tested, token(nbf=NOW + 6))


async def test_the_audience_must_be_this_broker():
    tested = provider(tokenAudienceClaim="aud", tokenAudience="here")
    assert await role_of(tested, token(aud="here")) == "alice"
    assert await role_of(tested, token(aud=["there", "here"])) == "alice"
    for claims in ({}, {"aud": "there"}, {"aud": []}, {"aud": [["here"]]}, {"aud": {"here": 1}}):
        assert "not for this broker" in await refusal_of(tested, token(**claims))


async def test_the_role_may_be_in_another_claim():
    tested = provider(tokenAuthClaim="client")
    assert await role_of(tested, token(client="carol")) == "carol"
    await refusal_of(tested, token())


async def test_a_very_long_token_is_refused():
    longer = TOKEN_BYTES_MAX - len(token(pad="")) - 10
    assert await role_of(provider(), token(pad="x" * (longer * 3 // 4))) == "alice"
    assert "bytes" in await refusal_of(provider(), token(pad="x" * TOKEN_BYTES_MAX))


async def test_deeply_nested_json_is_refused():
    deep = base64.urlsafe_b64encode(b"[" * 12_000).rstrip(b"=").decode()
    await refusal_of(provider(), f"{deep}.{part({'sub': 'alice'})}.{part(b'x')}")


async def test_white_space_around_a_token_does_not_count():
    assert await role_of(provider(), f" {token()}\n") == "alice"


@pytest.mark.parametrize("text", ["", "  ", "a.b", "a.b.c.d", "ä.b.c", "Bearer a.b.c"])
async def test_what_is_no_token_is_refused(text):
    await refusal_of(provider(), text)


def test_http_shows_a_token_as_bearer():
    tested = provider()
    assert tested.credential_of({"authorization": "Bearer abc"}) == b"abc"
    for headers in ({}, {"authorization": "Basic abc"}, {"authorization": "bearer abc"}):
        with pytest.raises(AuthenticationFailed):
            tested.credential_of(headers)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"tokenSecretKey": ""}, "needs tokenSecretKey or tokenPublicKey"),
        ({"tokenSecretKey": data_url(bytes(31))}, "tokenSecretKey: the secret has 31 bytes"),
        ({"tokenSecretKey": "file:///nowhere"}, "cannot read /nowhere"),
        ({"tokenSecretKey": "file:///dev/zero"}, "cannot read /dev/zero: it is not a regular"),
        ({"tokenSecretKey": "/dev"}, "cannot read /dev: Is a directory"),
        ({"tokenSecretKey": "!!!"}, "neither a file that exists nor base64"),
        ({"tokenSecretKey": "data:;base64,!!!"}, "no valid data: URL"),
        ({"tokenSecretKey": "", "tokenPublicKey": data_url(b"x")}, "no public key in DER or PEM"),
        ({"tokenAudienceClaim": "aud"}, "tokenAudience has to be set"),
        (
            {
                "tokenSecretKey": "",
                "tokenPublicKey": data_url(public_bytes(rsa_key())),
                "tokenPublicAlg": "ES256",
            },
            "tokenPublicAlg=ES256",
        ),
        (
            {"tokenSecretKey": "", "tokenPublicKey": data_url(public_bytes(rsa_key(1024)))},
            "1024 bits",
        ),
    ],
)
def test_keys_that_cannot_be_used_are_refused_in_one_line(keys, line):
    with pytest.raises(ProviderRefused) as caught:
        provider(**keys)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_secret_is_read_from_where_pulsar_reads_it(tmp_path):
    path = tmp_path / "secret.key"
    path.write_bytes(SECRET)
    for source in (str(path), f"file://{path}", base64.b64encode(SECRET).decode()):
        assert await role_of(provider(tokenSecretKey=source), token()) == "alice"


async def test_a_public_key_may_be_pem():
    url = data_url(public_bytes(rsa_key(), Encoding.PEM))
    tested = provider(tokenSecretKey="", tokenPublicKey=url)
    assert await role_of(tested, token(rsa_key(), "RS256")) == "alice"
