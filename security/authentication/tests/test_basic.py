"""Users and passwords of htpasswd files."""

from __future__ import annotations

import base64

import pytest
import trio
import trio.lowlevel

from security.authentication.basic import PASSWORD_BYTES_MAX, basic_provider
from security.authentication.config import AuthenticationConfig
from security.authentication.identity import AuthenticationFailed, Evidence, ProviderRefused
from security.authentication.verification import Verifications

BCRYPT = "$2y$04$1c7NWKRmE8.6hkom9oyp6.ZsYXWZEIJEpNJyv.A32LcfpD4s8LZcq"


def provider(text: str):
    source = "data:;base64," + base64.b64encode(text.encode()).decode()
    return basic_provider(AuthenticationConfig(basicAuthConf=source), Verifications())


@pytest.fixture(scope="module")
def file() -> str:
    from passlib.hash import apr_md5_crypt, bcrypt, des_crypt

    return "".join(
        [
            f"apr1:{apr_md5_crypt.hash('secret')}\n",
            "\n",
            f"bcrypt:{bcrypt.using(rounds=4).hash('secret')}\n",
            f"crypt:{des_crypt.hash('secret')}\n",
            f"colon:{apr_md5_crypt.hash('a:b')}\n",
        ]
    )


async def role_of(tested, credential: str) -> str:
    return (await tested.authenticate(Evidence(credential.encode()))).role


async def refusal_of(tested, credential: str) -> str:
    with pytest.raises(AuthenticationFailed) as caught:
        await tested.authenticate(Evidence(credential.encode()))
    return str(caught.value)


@pytest.mark.parametrize("user", ["apr1", "bcrypt", "crypt"])
async def test_a_right_password_gives_the_user_and_a_wrong_one_does_not(file, user):
    tested = provider(file)
    for _ in range(2):
        assert await role_of(tested, f"{user}:secret") == user
        assert await refusal_of(tested, f"{user}:Secret") == "unknown user or wrong password"
    assert await refusal_of(tested, "nobody:secret") == "unknown user or wrong password"


async def test_what_is_no_user_and_password_is_refused(file):
    tested = provider(file)
    for credential in ("", "apr1", "apr1:", ":", ":secret", "apr1:" + "x" * PASSWORD_BYTES_MAX):
        await refusal_of(tested, credential)
    await refusal_of(tested, "apr1:sec\0ret")


async def test_a_right_password_is_hashed_once(file, monkeypatch):
    verifications = Verifications()
    hashed = 0
    hash_in_thread = verifications.hash

    async def counted(*args):
        nonlocal hashed
        hashed += 1
        return await hash_in_thread(*args)

    source = "data:;base64," + base64.b64encode(file.encode()).decode()
    tested = basic_provider(AuthenticationConfig(basicAuthConf=source), verifications)
    monkeypatch.setattr(Verifications, "hash", lambda _self, *args: counted(*args))
    for _ in range(5):
        await role_of(tested, "bcrypt:secret")
    assert hashed == 1
    await refusal_of(tested, "bcrypt:wrong")
    assert hashed == 2


async def test_hashing_leaves_the_event_loop_free():
    from passlib.hash import bcrypt

    tested = provider(f"slow:{bcrypt.using(rounds=8).hash('secret')}\n")
    done, turns = trio.Event(), 0

    async def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        assert await role_of(tested, "slow:secret") == "slow"
        done.set()
    assert turns > 1


async def test_unknown_users_take_the_time_of_any_hash_of_the_file(file, monkeypatch):
    """With that of the first line, a file with hashes of two kinds would tell who is known."""
    taken = set()

    async def seen(_self, _work, _password, stored):
        taken.add(stored)
        return False

    tested = provider(file)
    monkeypatch.setattr(Verifications, "hash", seen)
    for number in range(200):
        await refusal_of(tested, f"nobody-{number}:secret")
    assert len(taken) == 4
    taken.clear()
    for _ in range(20):
        await refusal_of(tested, "nobody:secret")
    assert len(taken) == 1


def test_http_shows_user_and_password(file):
    tested = provider(file)
    text = base64.b64encode(b"apr1:secret").decode()
    assert tested.credential_of({"authorization": f"Basic {text}"}) == b"apr1:secret"
    for header in ("", "Bearer x", "Basic !!!", f"basic {text}"):
        with pytest.raises(AuthenticationFailed):
            tested.credential_of({"authorization": header})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "needs basicAuthConf|names no user"),
        ("\n\n", "names no user"),
        ("alice", "line 1 is not user:hash"),
        ("\nalice:secret", "line 2 is not user:hash"),
        ("alice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=", "line 1 is not user:hash"),
        (":$apr1$lsoGYSpi$.XgEcuMv8XMZSSqXwMEzG.", "line 1 is not user:hash"),
        ("alice:$apr1$lsoGYSpi", "line 1 is not user:hash"),
        ("alice:$2y$05$torn", "line 1 is not user:hash"),
        (f"alice:{BCRYPT.replace('$04$', '$xx$')}", "line 1 is not user:hash"),
        (f"alice:{BCRYPT.replace('$04$', '$31$')}", "cost 31"),
        (f"alice:{BCRYPT.replace('$04$', '$17$')}", "cost 17"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_in_one_line(text, line):
    with pytest.raises(ProviderRefused, match=line) as caught:
        provider(text)
    assert "secret" not in str(caught.value)
