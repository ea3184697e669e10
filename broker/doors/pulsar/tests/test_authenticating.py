"""CONNECT with credentials, and their renewal."""

from __future__ import annotations

import pytest
import trio.testing

from broker.net.tests.harness import T, running
from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.connection import PROTOCOL_VERSION
from security.authentication.claims import ClaimRules
from security.authentication.counts import AuthenticationCounts
from security.authentication.identity import CREDENTIAL_BYTES_MAX
from security.authentication.lease import UNREAD_SECONDS_MAX
from security.authentication.service import Authentication
from security.authentication.signatures import key_of_secret
from security.authentication.tests.tokens import NOW, SECRET, token, unsigned
from security.authentication.token import TokenProvider
from security.authentication.verification import Verifications
from security.caller import Caller

REFRESHES = pb.FeatureFlags(supports_auth_refresh=True)
CHECK_SECONDS = 10
FAR = bytes(32)


class TrioClock:
    """The broker's clock on trio's, so that MockClock moves it."""

    def now(self):
        return trio.current_time()

    def wall_ms(self):
        return int((NOW + trio.current_time()) * 1000)


def authentication(anonymous="", clock=None):
    clock = clock or TrioClock()
    rules = ClaimRules()
    provider = TokenProvider(key_of_secret(SECRET), rules, lambda: clock.wall_ms() / 1000)
    return Authentication([provider], anonymous, Verifications(), AuthenticationCounts(lambda: NOW))


def guarded(anonymous="", **settings):
    keys = {"authenticationEnabled": True, "authenticationRefreshCheckSeconds": CHECK_SECONDS}
    return running(
        clock=TrioClock(), authentication=authentication(anonymous), **{**keys, **settings}
    )


def with_token(text: str, **fields):
    return {"auth_method_name": "token", "auth_data": text.encode(), **fields}


def session_of(broker):
    [session] = broker.service.connections.open
    return session


async def refused(connection):
    """The ERROR, after which the broker closes."""
    error = await connection.error()
    assert await connection.next() is None
    return error


async def test_a_right_token_opens_the_session_as_its_role():
    async with guarded() as broker:
        await broker.connect(**with_token(token()))
        assert session_of(broker).caller == Caller("alice")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        with_token(""),
        with_token("a.b.c"),
        with_token(token(FAR)),
        with_token(token(exp=NOW - 1000)),
        with_token(unsigned()),
        {"auth_method_name": "basic", "auth_data": b"alice:secret"},
        {"auth_method": pb.AuthMethodAthens, "auth_data": token().encode()},
        with_token("x" * 60_000),
    ],
)
async def test_everybody_else_is_told_the_same_and_disconnected(fields):
    async with guarded() as broker:
        connection = await broker.raw()
        await connection.send(c.connect(**fields))
        error = await refused(connection)
        assert error.error == pb.AuthenticationError
        assert error.message == "Failed to authenticate"
        assert error.request_id == 2**64 - 1


async def test_a_method_that_nobody_provides_is_the_anonymous_role():
    async with guarded(anonymous="anybody") as broker:
        await broker.connect()
        assert session_of(broker).caller == Caller("anybody")
        wrong = await broker.raw()
        await wrong.send(c.connect(**with_token(token(FAR))))
        assert (await refused(wrong)).error == pb.AuthenticationError


async def test_nothing_is_done_before_the_credentials_are_verified():
    async with guarded() as broker:
        for fields in (with_token(token()), with_token(token(FAR))):
            connection = await broker.raw()
            await connection.send(c.connect(**fields), c.producer("t", 1, 1))
            seen = []
            while (answer := await connection.next()) is not None:
                seen.append(answer[0].type)
            assert T.PRODUCER_SUCCESS not in seen
        assert not broker.service.topics


async def test_a_refused_client_is_served_nothing_while_it_lingers():
    async with guarded() as broker:
        connection = await broker.raw()
        await connection.send(c.connect(**with_token(token(FAR))))
        await connection.error()
        await connection.send(c.producer("t", 1, 1), c.connect(**with_token(token())))
        assert await connection.next() is None
        assert not broker.service.topics


async def test_a_flood_of_wrong_tokens_does_not_hold_up_a_producer():
    async with guarded() as broker:
        good = await broker.connect(**with_token(token()))
        await good.producer("t")
        flood = [await broker.raw() for _ in range(50)]
        for each in flood:
            await each.send(c.connect(**with_token(token(FAR))))
        await good.publish(1)
        await good.expect(T.SEND_RECEIPT)
        for each in flood:
            assert (await refused(each)).error == pb.AuthenticationError


async def test_statistics_show_the_role_of_a_consumer():
    async with guarded() as broker:
        connection = await broker.connect(**with_token(token()))
        await connection.subscribe("t")
        [consumer] = broker.topic("t").subscriptions["s"].statistics().consumers
        assert consumer.as_json()["appId"] == "alice"


# --- proxies ----------------------------------------------------------------------------


async def test_a_proxy_speaks_for_its_client():
    async with guarded(proxyRoles=("proxy",)) as broker:
        fields = with_token(token(sub="proxy"), original_principal="alice")
        await broker.connect(**fields)
        assert session_of(broker).caller == Caller("proxy", "alice")


@pytest.mark.parametrize(
    ("role", "original"),
    [("proxy", None), ("proxy", ""), ("proxy", "proxy"), ("alice", "bob"), ("alice", "alice")],
)
async def test_roles_that_do_not_go_together_are_refused(role, original):
    async with guarded(proxyRoles=("proxy",)) as broker:
        connection = await broker.raw()
        fields = {} if original is None else {"original_principal": original}
        await connection.send(c.connect(**with_token(token(sub=role), **fields)))
        error = await refused(connection)
        assert (error.error, error.message) == (pb.AuthorizationError, "Invalid roles.")


async def test_the_credential_of_a_client_behind_a_proxy_is_verified_when_that_is_wanted():
    settings = {"proxyRoles": ("proxy",), "authenticateOriginalAuthData": True}
    async with guarded(**settings) as broker:
        fields = with_token(
            token(sub="proxy"),
            original_principal="somebody",
            original_auth_method="token",
            original_auth_data=token(sub="bob"),
        )
        await broker.connect(**fields)
        assert session_of(broker).caller == Caller("proxy", "bob")
        wrong = await broker.raw()
        await wrong.send(c.connect(**{**fields, "original_auth_data": token(FAR)}))
        assert (await refused(wrong)).error == pb.AuthenticationError


# --- renewal ----------------------------------------------------------------------------


async def connected(broker, seconds: float, **fields):
    connection = await broker.in_memory()
    at = NOW + trio.current_time() + seconds
    await connection.handshake(**with_token(token(exp=at), **fields))
    return connection


@pytest.fixture
def clock(mock_clock):
    mock_clock.rate = 0
    return mock_clock


async def pass_checks(broker, clock, count=1):
    """Let the periodic check run so often."""
    await broker.let_pass(clock, count * CHECK_SECONDS, CHECK_SECONDS)


async def test_an_expired_token_is_renewed_again_and_again(clock):
    async with guarded() as broker:
        connection = await connected(broker, 5, feature_flags=REFRESHES)
        for _ in range(10):
            await pass_checks(broker, clock)
            challenge = await connection.expect(T.AUTH_CHALLENGE)
            assert challenge.challenge.auth_method_name == "token"
            assert challenge.challenge.auth_data == b"PulsarAuthRefresh"
            assert challenge.protocol_version == PROTOCOL_VERSION
            at = NOW + trio.current_time() + 5
            await connection.send(c.auth_response("token", token(exp=at).encode()))
            await connection.send(c.ping())
            await connection.expect(T.PONG)
        assert session_of(broker).caller == Caller("alice")


async def test_a_token_that_has_not_expired_is_left_alone(clock):
    async with guarded() as broker:
        connection = await connected(broker, 1000, feature_flags=REFRESHES)
        await pass_checks(broker, clock, 2)
        await connection.send(c.ping())
        await connection.expect(T.PONG)


async def test_a_client_that_cannot_renew_is_disconnected(clock):
    async with guarded() as broker:
        connection = await connected(broker, 5)
        await pass_checks(broker, clock)
        assert await connection.next() is None


async def test_a_challenge_without_an_answer_ends_the_connection(clock):
    async with guarded() as broker:
        connection = await connected(broker, 5, feature_flags=REFRESHES)
        await pass_checks(broker, clock)
        await connection.expect(T.AUTH_CHALLENGE)
        await pass_checks(broker, clock)
        assert await connection.next() is None


async def test_a_proxy_that_forwards_no_credentials_cannot_renew(clock):
    async with guarded(proxyRoles=("proxy",)) as broker:
        connection = await broker.in_memory()
        text = token(sub="proxy", exp=NOW + trio.current_time() + 5)
        fields = {"original_principal": "alice", "feature_flags": REFRESHES}
        await connection.handshake(**with_token(text, **fields))
        await pass_checks(broker, clock)
        assert await connection.next() is None


async def answered_with(broker, clock, text):
    connection = await connected(broker, 5, feature_flags=REFRESHES)
    await pass_checks(broker, clock)
    await connection.expect(T.AUTH_CHALLENGE)
    await connection.send(c.auth_response("token", text.encode()))
    return connection


async def test_another_role_is_no_renewal(clock):
    async with guarded() as broker:
        connection = await answered_with(broker, clock, token(sub="bob"))
        assert await connection.next() is None


async def test_a_wrong_renewal_is_refused(clock):
    async with guarded() as broker:
        connection = await answered_with(broker, clock, token(FAR))
        error = await connection.error()
        assert (error.error, error.message) == (
            pb.AuthenticationError,
            "Failed to authenticate",
        )


async def test_an_answer_that_is_too_large_or_that_nobody_asked_for_ends_the_connection():
    async with guarded(anonymous="anybody") as broker:
        anonymous = await broker.connect()
        await anonymous.send(c.auth_response("token", token().encode()))
        assert "without a credential" in await anonymous.closed()
        large = await broker.connect(**with_token(token()))
        await large.send(c.auth_response("token", b"x" * (CREDENTIAL_BYTES_MAX + 1)))
        assert "bytes" in await large.closed()


# --- behind a publish rate --------------------------------------------------------------


async def held(broker, clock, count):
    """A client with an expired token and so many messages, at a rate of one per second, after the
    challenge."""
    connection = await connected(broker, 5, feature_flags=REFRESHES)
    await connection.producer("t")
    for number in range(count):
        await connection.publish(number)
    await pass_checks(broker, clock)
    while (await connection.next())[0].type != T.AUTH_CHALLENGE:
        pass
    return connection


SLOW = {"maxPublishRatePerTopicInMessages": 1, "keepAliveIntervalSeconds": 10_000}


async def test_a_client_that_is_held_by_a_publish_rate_is_not_late_with_its_answer(clock):
    async with guarded(**SLOW) as broker:
        connection = await held(broker, clock, 8)
        at = NOW + trio.current_time() + 1000
        await connection.send(c.auth_response("token", token(exp=at).encode()))
        await pass_checks(broker, clock, 20)
        assert broker.topic("t").published.messages() == 8
        assert session_of(broker).lease.identity.expires_at == pytest.approx(at, abs=1)


async def test_a_held_client_that_never_answers_is_disconnected_in_the_end(clock):
    async with guarded(**SLOW) as broker:
        await held(broker, clock, 500)
        await pass_checks(broker, clock, 10)
        assert broker.service.connections.open
        await pass_checks(broker, clock, int(UNREAD_SECONDS_MAX / CHECK_SECONDS))
        assert not broker.service.connections.open
