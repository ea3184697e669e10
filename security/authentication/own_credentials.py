"""The credentials that a broker shows to other brokers: Pulsar's plugins of clients, by the names
of their classes, with the same forms of their parameters.

What a file holds is read for each connection and each request, so that a credential that was
replaced is used at once, and AUTH_CHALLENGE can be answered. No text of an error has a parameter in
it, because it may be the credential.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, final

from security.authentication.identity import (
    BASIC_METHOD,
    CREDENTIAL_BYTES_MAX,
    TLS_METHOD,
    TOKEN_METHOD,
    CredentialUnreadable,
    ProviderRefused,
)
from security.authentication.service import METHOD_HEADER
from security.tls_rules import path_of
from settings.plain_file import read_plain_file

if TYPE_CHECKING:
    from collections.abc import Mapping

_PACKAGE: Final = "org.apache.pulsar.client.impl.auth."
_TOKEN: Final = f"{_PACKAGE}AuthenticationToken"
TLS_PLUGIN: Final = f"{_PACKAGE}AuthenticationTls"
_BASIC: Final = f"{_PACKAGE}AuthenticationBasic"
PLUGIN_CLASSES: Final = (_TOKEN, TLS_PLUGIN, _BASIC)

PLUGIN_KEY: Final = "brokerClientAuthenticationPlugin"
PARAMETERS_KEY: Final = "brokerClientAuthenticationParameters"

Header = tuple[str, str]


class OwnCredentials(Protocol):
    """One way to show who this broker is."""

    @property
    def method(self) -> str:
        """Its name in CONNECT."""

    @property
    def certificate_path(self) -> str:
        """The path of the certificate for connections; empty: that of other keys, if there is
        one."""

    @property
    def key_path(self) -> str:
        """The path of its key."""

    def read(self) -> bytes:
        """The credential in CONNECT, as it is now: may read a file.

        Raises: CredentialUnreadable.
        """

    def headers(self, credential: bytes) -> tuple[Header, ...]:
        """The same in an HTTP request."""


@final
@dataclass(frozen=True, slots=True)
class TokenCredentials:
    """A token, or the file that holds it."""

    token: str = field(default="", repr=False)
    path: str = ""
    method = TOKEN_METHOD
    certificate_path = key_path = ""

    def read(self) -> bytes:
        """See OwnCredentials."""
        if not self.path:
            return self.token.encode()
        try:
            content = read_plain_file(self.path, CREDENTIAL_BYTES_MAX).strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "this is no path"
            raise CredentialUnreadable(
                f"{PARAMETERS_KEY}: cannot read the token in {self.path}: {reason}"
            ) from None
        if not content or len(content) > CREDENTIAL_BYTES_MAX or not content.isascii():
            raise CredentialUnreadable(f"{PARAMETERS_KEY}: {self.path} holds no token")
        return content

    def headers(self, credential: bytes) -> tuple[Header, ...]:
        """RFC 6750, 2.1."""
        return (("Authorization", f"Bearer {credential.decode()}"), (METHOD_HEADER, TOKEN_METHOD))


@final
@dataclass(frozen=True, slots=True)
class BasicCredentials:
    """A user and a password."""

    text: str = field(repr=False)
    method = BASIC_METHOD
    certificate_path = key_path = ""

    def read(self) -> bytes:
        """See OwnCredentials."""
        return self.text.encode()

    def headers(self, credential: bytes) -> tuple[Header, ...]:
        """RFC 7617."""
        encoded = base64.b64encode(credential).decode()
        return (("Authorization", f"Basic {encoded}"), (METHOD_HEADER, BASIC_METHOD))


@final
@dataclass(frozen=True, slots=True)
class CertificateCredentials:
    """The certificate of the connection is the credential. Empty paths: it is that of
    `brokerClientCertificateFilePath`."""

    certificate_path: str = ""
    key_path: str = ""
    method = TLS_METHOD

    def read(self) -> bytes:
        """See OwnCredentials."""
        return b""

    def headers(self, credential: bytes) -> tuple[Header, ...]:
        """See OwnCredentials."""
        del credential
        return ((METHOD_HEADER, TLS_METHOD),)


def own_credentials(plugin: str, parameters: str) -> OwnCredentials | None:
    """The credentials that the two keys name; None: this broker shows none.

    Raises: ProviderRefused: the plugin is unknown, its parameters have another form, or a file of
        theirs cannot be read.
    """
    if not plugin:
        if parameters:
            raise ProviderRefused(f"{PARAMETERS_KEY} needs {PLUGIN_KEY}")
        return None
    if plugin == _TOKEN:
        credentials: OwnCredentials = _token(parameters)
    elif plugin == TLS_PLUGIN:
        credentials = _certificate(parameters)
    elif plugin == _BASIC:
        credentials = _basic(parameters)
    else:
        raise ProviderRefused(
            f"{PLUGIN_KEY}={plugin} is not supported; Vela has {', '.join(PLUGIN_CLASSES)}"
        )
    try:
        credentials.read()
    except CredentialUnreadable as error:
        raise ProviderRefused(str(error)) from None
    return credentials


def _token(parameters: str) -> TokenCredentials:
    """`token:...`, `file:///path`, `{"token": "..."}`, or the token alone."""
    text = parameters.strip()
    if text.startswith("file:"):
        return TokenCredentials(path=path_of(text))
    if text.startswith("{"):
        token = _members(text).get("token", "")
    else:
        token = text.removeprefix("token:").strip()
    if not token or not token.isascii():
        raise ProviderRefused(
            f"{PARAMETERS_KEY} has no token: give token:..., or file:///path of a file with it"
        )
    return TokenCredentials(token)


def _basic(parameters: str) -> BasicCredentials:
    """`{"userId": "...", "password": "..."}`."""
    members = _members(parameters)
    user, password = members.get("userId", ""), members.get("password", "")
    if not user or ":" in user:
        raise ProviderRefused(
            f'{PARAMETERS_KEY} has no user: give {{"userId": "...", "password": "..."}}'
        )
    return BasicCredentials(f"{user}:{password}")


def _certificate(parameters: str) -> CertificateCredentials:
    """`tlsCertFile:/path,tlsKeyFile:/path`, or the same as JSON, or nothing."""
    text = parameters.strip()
    if text.startswith("{"):
        members = _members(text)
    else:
        pairs = (each.partition(":") for each in text.split(",") if each.strip())
        members = {name.strip(): value.strip() for name, _, value in pairs}
    certificate, key = members.pop("tlsCertFile", ""), members.pop("tlsKeyFile", "")
    if members or bool(certificate) != bool(key):
        raise ProviderRefused(
            f"{PARAMETERS_KEY} must name both files: give tlsCertFile:/path,tlsKeyFile:/path"
        )
    return CertificateCredentials(certificate, key)


def _members(text: str) -> dict[str, str]:
    """The members of a JSON object of texts. Raises: ProviderRefused."""
    try:
        members: Mapping[str, object] = json.loads(text)
        if all(isinstance(value, str) for value in members.values()):
            return {name: str(value) for name, value in members.items()}
    except (ValueError, AttributeError):
        pass
    raise ProviderRefused(f"{PARAMETERS_KEY} is no JSON object of texts")
