"""Asks the configured providers, in Pulsar's order, and knows the anonymous role.

A connection names its method; an HTTP request may, and otherwise every method is tried. Several
providers of one method are tried one after the other, as by Pulsar's AuthenticationProviderList.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from security.authentication.identity import (
    CREDENTIAL_BYTES_MAX,
    AuthenticationFailed,
    Evidence,
    Headers,
    Identity,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from security.authentication.counts import AuthenticationCounts
    from security.authentication.identity import Provider
    from security.authentication.verification import Verifications

METHOD_HEADER: Final = "x-pulsar-auth-method-name"
NO_METHOD: Final = "none"
_SASL: Final = "sasl"
"""The method of Kerberos, which has no provider in Vela."""
_TRIED_FIRST: Final = ("tls", "basic", "token")
"""The order in which an HTTP request is taken, which Pulsar's hash map decides."""


@final
class Authentication:
    """The providers of one server."""

    def __init__(
        self,
        providers: Iterable[Provider],
        anonymous_role: str,
        verifications: Verifications,
        counts: AuthenticationCounts,
    ) -> None:
        """`anonymous_role`: empty: who shows nothing is refused."""
        self._providers: dict[str, tuple[Provider, ...]] = {}
        for provider in sorted(providers, key=lambda each: _TRIED_FIRST.index(each.method)):
            before = self._providers.get(provider.method, ())
            self._providers[provider.method] = (*before, provider)
        self._anonymous_role = anonymous_role
        self._verifications = verifications
        self.counts = counts

    async def of_connection(self, method: str, evidence: Evidence) -> Identity:
        """The identity of a client that connects with this method. A method without a provider
        gives the anonymous role, as in Pulsar.

        Raises: AuthenticationFailed.
        """
        if method not in self._providers:
            return self._anonymous(self._no_method())
        await self._verifications.take_turn()
        return await self.again(method, evidence)

    async def again(self, method: str, evidence: Evidence) -> Identity:
        """The same for a client that was authenticated with this method before: it waits for no
        stranger. Raises: AuthenticationFailed."""
        if len(evidence.data) > CREDENTIAL_BYTES_MAX:
            raise AuthenticationFailed(f"the credential has over {CREDENTIAL_BYTES_MAX} bytes")
        failures: list[str] = []
        for provider in self._providers[method]:
            try:
                identity = await provider.authenticate(evidence)
            except AuthenticationFailed as error:
                self.counts.refused(provider, error)
                failures.append(str(error))
            else:
                self.counts.accepted(provider, identity)
                return identity
        raise AuthenticationFailed(f"{method}: {'; '.join(failures)}")

    async def of_request(self, headers: Headers, certificate: bytes | None) -> Identity:
        """The identity of the sender of an HTTP request; `certificate` as in `Evidence`. Without
        credentials that a provider accepts it is the anonymous role, unless the request names a
        method.

        Raises: AuthenticationFailed.
        """
        method = _method_of(headers)
        if method is not None:
            if method not in self._providers:
                raise AuthenticationFailed(self._no_method())
            return await self._of_request(method, headers, certificate)
        failures: list[str] = []
        for each in self._providers:
            try:
                return await self._of_request(each, headers, certificate)
            except AuthenticationFailed as error:
                failures.append(str(error))
        return self._anonymous("; ".join(failures) or "no provider is configured")

    async def _of_request(
        self, method: str, headers: Headers, certificate: bytes | None
    ) -> Identity:
        data = self._providers[method][0].credential_of(headers)
        await self._verifications.take_turn()
        return await self.again(method, Evidence(data, certificate))

    def _no_method(self) -> str:
        """The given method is not shown: some users give their secret there."""
        return f"the method is none of those configured: {', '.join(self._providers) or 'none'}"

    def _anonymous(self, failure: str) -> Identity:
        if not self._anonymous_role:
            raise AuthenticationFailed(failure)
        return Identity(self._anonymous_role, NO_METHOD)


def _method_of(headers: Headers) -> str | None:
    """The method that a request names; None: every one is tried. Pulsar's clients of Kerberos have
    a header of their own."""
    if METHOD_HEADER in headers:
        return headers[METHOD_HEADER]
    return _SASL if headers.get("sasl-type", "").lower() == "kerberos" else None
