"""The file of `metadataStoreConfigPath`: TLS to ZooKeeper, and credentials for it.

It is a configuration of ZooKeeper's own client (`ZKClientConfig`), as in Pulsar, with files in PEM
form. The credentials are keys of Vela, because ZooKeeper has no keys for them. A session with
credentials owns the nodes that it makes, and no other session can read or change them.

An unknown key is refused, because it may be meant to protect something.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from security.tls_rules import TlsClientRules, TlsKeyNames, path_of
from settings.plain_file import read_plain_file
from settings.reading import ConfigError, read_properties

PATH_KEY: Final = "metadataStoreConfigPath"
_SECURE: Final = "zookeeper.client.secure"
_KEY_STORE: Final = "zookeeper.ssl.keyStore.location"
_KEY_STORE_TYPE: Final = "zookeeper.ssl.keyStore.type"
_TRUST_STORE: Final = "zookeeper.ssl.trustStore.location"
_TRUST_STORE_TYPE: Final = "zookeeper.ssl.trustStore.type"
_HOST_NAMES: Final = "zookeeper.ssl.hostnameVerification"
_USER: Final = "vela.zookeeper.digest.username"
_PASSWORD: Final = "vela.zookeeper.digest.password"
_OF_TLS: Final = frozenset(
    {_KEY_STORE, _KEY_STORE_TYPE, _TRUST_STORE, _TRUST_STORE_TYPE, _HOST_NAMES}
)
_WITHOUT_EFFECT: Final = frozenset({"zookeeper.clientCnxnSocket"})
"""It chooses among classes of Java."""
_KNOWN: Final = _OF_TLS | _WITHOUT_EFFECT | {_SECURE, _USER, _PASSWORD}
_PEM: Final = "PEM"
_PASSWORD_BYTES_MAX: Final = 4_096
_NAMES: Final = TlsKeyNames(_KEY_STORE, _KEY_STORE, _TRUST_STORE)
HOW_TO_CONVERT: Final = (
    "Vela reads PEM files; make them of a keystore with openssl pkcs12 -in a.p12 -out a.pem -nodes"
)


class AccessRefused(Exception):
    """The file cannot be used. The text is one line for the user, without a credential."""


@final
@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """How ZooKeeper is reached, and with which credentials."""

    tls: TlsClientRules | None = None
    """None: without TLS."""
    digest: str = field(default="", repr=False)
    """`user:password`; empty: everyone may do everything with the nodes that are made."""


OPEN: Final = ZooKeeperAccess()


def read_access(path: str) -> ZooKeeperAccess:
    """Read the file. An empty path: neither TLS nor credentials.

    Raises: AccessRefused.
    """
    if not path:
        return OPEN
    try:
        values = {each.key: each.value for each in read_properties(Path(path_of(path)))}
    except ConfigError as error:
        raise AccessRefused(f"{PATH_KEY}: {_without_values(str(error))}") from None
    for key, value in values.items():
        if key not in _KNOWN and not value:
            # A line with one word is a key without a value; it may be a password.
            raise AccessRefused(f"{PATH_KEY}={path}: expected key=value")
        if key not in _KNOWN:
            raise AccessRefused(f"{PATH_KEY}={path}: Vela does not have the key {key!r}")
    return ZooKeeperAccess(_tls(path, values), _digest(path, values))


def _without_values(text: str) -> str:
    """A line that is no setting may be a password."""
    return text.partition(", found ")[0]


def _tls(path: str, values: dict[str, str]) -> TlsClientRules | None:
    """Raises: AccessRefused."""
    if not _is_true(path, _SECURE, values.get(_SECURE, "false")):
        for key in sorted(_OF_TLS & values.keys()):
            raise AccessRefused(f"{PATH_KEY}={path}: {key} needs {_SECURE}=true")
        return None
    for location, kind in ((_KEY_STORE, _KEY_STORE_TYPE), (_TRUST_STORE, _TRUST_STORE_TYPE)):
        place = values.get(location, "")
        given = values.get(kind, "") or (_PEM if place.endswith(".pem") else "JKS")
        if place and given != _PEM:
            raise AccessRefused(
                f"{PATH_KEY}={path}: {location} of the type {given} is not supported, set "
                f"{kind}={_PEM}: {HOW_TO_CONVERT}"
            )
    own = values.get(_KEY_STORE, "")
    return TlsClientRules(
        names=_NAMES,
        trusted_path=values.get(_TRUST_STORE, ""),
        certificate_path=own,
        key_path=own,
        verifies_host_name=_is_true(path, _HOST_NAMES, values.get(_HOST_NAMES, "true")),
        check_seconds=0.0,
    )


def _is_true(path: str, key: str, value: str) -> bool:
    """Raises: AccessRefused."""
    if value.lower() not in ("true", "false"):
        raise AccessRefused(f"{PATH_KEY}={path}: {key} should be true or false")
    return value.lower() == "true"


def _digest(path: str, values: dict[str, str]) -> str:
    """Raises: AccessRefused."""
    user, password = values.get(_USER, ""), values.get(_PASSWORD, "")
    if not user and not password:
        return ""
    if not user or not password or ":" in user:
        raise AccessRefused(
            f"{PATH_KEY}={path}: {_USER} and {_PASSWORD} belong together, and a user has no colon"
        )
    if password.startswith("file:"):
        try:
            content = read_plain_file(path_of(password), _PASSWORD_BYTES_MAX)
            password = content.decode("utf-8").strip()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise AccessRefused(f"{_PASSWORD}: cannot read {password}: {reason}") from None
        if not password or len(content) > _PASSWORD_BYTES_MAX:
            raise AccessRefused(f"{_PASSWORD}: the file holds no password")
    return f"{user}:{password}"
