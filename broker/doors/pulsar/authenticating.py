"""CONNECT and AUTH_RESPONSE while authentication is on: they identify the client.

Nothing else of a connection is handled before its credentials are verified. A client that is
refused gets one ERROR, always with the same text; the reason is in the log. A credential is held
only while it is looked at.

A proxy connects as itself, and names the client for which it speaks (`original_principal`). With
`authenticateOriginalAuthData` it forwards the credential of that client, too, which is then
verified, and renewed when it expires.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from broker.doors.pulsar.connect import open_session
from broker.net.errors import ConnectionRefused
from protocol import commands
from protocol import pulsar_api_pb2 as pb
from protocol.errors import ServerError
from security.authentication.identity import (
    CREDENTIAL_BYTES_MAX,
    AuthenticationFailed,
    Evidence,
    Identity,
)
from security.authentication.lease import Lease
from security.authentication.service import NO_METHOD
from security.caller import INVALID_OVER_BINARY, Caller, flaw_of

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from typing import Any

    from broker.doors.pulsar.session import ClientSession
    from broker.ground.config import BrokerConfig
    from security.authentication.service import Authentication

FAILED: Final = "Failed to authenticate"
"""Pulsar's text, whatever the reason."""
_ENUM_PREFIX: Final = "AuthMethod"
_RENEWABLE: Final = "supports_auth_refresh"
"""The feature flag of clients that answer AUTH_CHALLENGE."""


@final
class Authenticating:
    """The two handlers of one broker."""

    def __init__(
        self, authentication: Authentication, config: BrokerConfig, *, checks_proxies: bool
    ) -> None:
        """`checks_proxies`: whether the roles of a proxy and of its client must go together, as
        with authorization."""
        self._authentication = authentication
        self._proxy_roles = frozenset(config.proxyRoles)
        self._verifies_original = config.authenticateOriginalAuthData
        self._checks_proxies = checks_proxies

    # --- CONNECT ------------------------------------------------------------------------

    def handle_connect(
        self, session: ClientSession, body: pb.CommandConnect
    ) -> Coroutine[Any, Any, None]:
        """Verify the credentials, then open the session."""
        session.handshake.on_connect(body)
        session.handshake.verifying()
        return self._connect(session, body)

    async def _connect(self, session: ClientSession, body: pb.CommandConnect) -> None:
        try:
            caller, identity = await self._identify(session, body)
        except AuthenticationFailed as error:
            await _turn_away(session, error)
            return
        if self._checks_proxies:
            flaw = flaw_of(caller, self._proxy_roles, equal_is_fine=False)
            if flaw:
                answer = commands.error(
                    commands.NO_REQUEST, ServerError.AuthorizationError, INVALID_OVER_BINARY
                )
                await session.turn_away(answer, f"{flaw} (connected as {caller})")
                return
        session.caller = caller
        if identity.method != NO_METHOD:
            session.lease = Lease(identity, can_renew=self._can_renew(session, caller))
        open_session(session)

    def _can_renew(self, session: ClientSession, caller: Caller) -> bool:
        """A proxy that forwards no credentials cannot have its client renew one."""
        if caller.original_role is not None and not self._verifies_original:
            return False
        return _RENEWABLE in session.handshake.client_features

    async def _identify(
        self, session: ClientSession, body: pb.CommandConnect
    ) -> tuple[Caller, Identity]:
        """The identity that is served, and the one whose credential has to be renewed. Raises:
        AuthenticationFailed."""
        evidence = Evidence(body.auth_data, session.peer_certificate)
        identity = await self._authentication.of_connection(_method_of(body), evidence)
        if not body.HasField("original_principal"):
            return Caller(identity.role), identity
        if not self._verifies_original:
            return Caller(identity.role, body.original_principal), identity
        # The certificate of the connection is the proxy's.
        original = await self._authentication.of_connection(
            body.original_auth_method or NO_METHOD, Evidence(body.original_auth_data.encode())
        )
        if original.method == NO_METHOD:
            # The proxy, too, has an anonymous role for clients without credentials: as in Pulsar,
            # the connection then belongs to that role alone.
            return Caller(original.role, original.role), original
        return Caller(identity.role, original.role), original

    # --- AUTH_RESPONSE ------------------------------------------------------------------

    def handle_auth_response(
        self, session: ClientSession, body: pb.CommandAuthResponse
    ) -> Coroutine[Any, Any, None]:
        """Verify the new credential. Other commands go on meanwhile."""
        lease, data = session.lease, body.response.auth_data
        if lease is None:
            raise ConnectionRefused("AUTH_RESPONSE of a client without a credential to renew")
        if lease.renewing:
            raise ConnectionRefused("AUTH_RESPONSE while another one is looked at")
        if len(data) > CREDENTIAL_BYTES_MAX:
            raise ConnectionRefused(f"AUTH_RESPONSE with over {CREDENTIAL_BYTES_MAX} bytes")
        lease.answered()
        lease.renewing = True
        return self._renew(session, lease, data)

    async def _renew(self, session: ClientSession, lease: Lease, data: bytes) -> None:
        try:
            is_own = session.caller.original_role is None
            evidence = Evidence(data, session.peer_certificate if is_own else None)
            identity = await self._authentication.again(lease.identity.method, evidence)
        except AuthenticationFailed as error:
            await _turn_away(session, error)
            return
        finally:
            lease.renewing = False
        before = lease.identity.role
        if not lease.renewed(identity):
            session.close(
                f"the role must not change with a new credential: {before!r} to {identity.role!r}"
            )


def _method_of(body: pb.CommandConnect) -> str:
    """By name, or by number as sent by the oldest clients."""
    if body.HasField("auth_method_name"):
        return body.auth_method_name
    if body.HasField("auth_method"):
        return pb.AuthMethod.Name(body.auth_method).removeprefix(_ENUM_PREFIX).lower()
    return NO_METHOD


async def _turn_away(session: ClientSession, error: AuthenticationFailed) -> None:
    answer = commands.error(commands.NO_REQUEST, ServerError.AuthenticationError, FAILED)
    await session.turn_away(answer, f"{FAILED}: {error}")
