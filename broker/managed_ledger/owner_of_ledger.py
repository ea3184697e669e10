"""The custom metadata of a ledger that names its owner.

Pure. Keys and values are those that real Pulsar writes into the custom metadata of its ledgers
(LedgerMetadataUtils of Pulsar 4.0). Its tools can therefore identify ledgers of Vela, and Vela
those of Pulsar. Only the ledgers of virtual cursors, which Pulsar does not have, are marked by
Vela's own keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.managed_ledger.paths import encode_name
from protocol.errors import InvalidTopicName
from protocol.topic_name import TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping

_APPLICATION: Final = ("application", b"pulsar")
_COMPONENT: Final = ("component", b"managed-ledger")
_MANAGED_LEDGER: Final = "pulsar/managed-ledger"
_CURSOR: Final = "pulsar/cursor"
_NAME_PARTS: Final = 4
_COMPACTED: Final = ("component", b"compacted-ledger")
_COMPACTED_TOPIC: Final = "pulsar/compactedTopic"
_COMPACTED_TO: Final = "pulsar/compactedTo"
_VELA: Final = ("application", b"vela")
_BROADCAST: Final = ("component", b"broadcast")


def ledger_custom_metadata(name: str, cursor_name: str | None = None) -> dict[str, bytes]:
    """For a ledger of this managed ledger, or of one of its cursors."""
    custom = dict([_APPLICATION, _COMPONENT])
    custom[_MANAGED_LEDGER] = name.encode()
    if cursor_name is not None:
        custom[_CURSOR] = cursor_name.encode()
    return custom


def compacted_custom_metadata(topic_name: str, up_to: bytes) -> dict[str, bytes]:
    """For a ledger with what was kept of a topic; `up_to`: the last message id, as clients
    serialize it."""
    custom = dict([_APPLICATION, _COMPACTED])
    custom[_COMPACTED_TOPIC] = topic_name.encode()
    custom[_COMPACTED_TO] = up_to
    return custom


def broadcast_custom_metadata(topic_name: str, subscription: str) -> dict[str, bytes]:
    """For a ledger of virtual cursors; `topic_name` is the full one."""
    custom = dict([_VELA, _BROADCAST])
    custom["topic"] = topic_name.encode()
    custom["subscription"] = subscription.encode()
    return custom


def is_ledger_of_cursor(custom: Mapping[str, bytes], name: str, cursor_name: str) -> bool:
    """Whether a ledger may be one of this cursor. Those of old versions of Pulsar do not say whose
    they are, and newer ones name a cursor as in its path."""
    owner = managed_ledger_of(custom)
    names = (cursor_name.encode(), encode_name(cursor_name).encode())
    return owner is None or (owner == name and custom.get(_CURSOR) in names)


def is_attached(custom: Mapping[str, bytes], name: str, cursor_name: str) -> bool:
    """Whether a ledger is one of virtual cursors of this cursor, as Vela marks all of these."""
    if not _is_marked(custom, _VELA, _BROADCAST) or managed_ledger_of(custom) != name:
        return False
    return custom.get("subscription") == cursor_name.encode()


def may_be_compacted(custom: Mapping[str, bytes], topic_name: str) -> bool:
    """Whether a ledger may hold what was kept of this topic. Old ledgers say nothing."""
    if _COMPONENT[0] not in custom:
        return True
    return (
        _is_marked(custom, _APPLICATION, _COMPACTED)
        and custom.get(_COMPACTED_TOPIC) == topic_name.encode()
    )


def cursors_of(custom: Mapping[str, bytes]) -> tuple[str, ...]:
    """The names in paths, encoded, of the cursor whose ledger it is, or that its virtual cursors
    belong to: two, if it is not certain which. Empty: it is not marked as one of a cursor.

    Raises: UnicodeDecodeError.
    """
    key = "subscription" if _is_marked(custom, _VELA, _BROADCAST) else _CURSOR
    marked = custom.get(key)
    if marked is None:
        return ()
    name = marked.decode()
    encoded = encode_name(name)
    return (encoded,) if name == encoded or "/" in name else (encoded, name)


def managed_ledger_of(custom: Mapping[str, bytes]) -> str | None:
    """The managed ledger (`tenant/namespace/persistent/topic`) that owns a ledger, itself or
    through one of its cursors; None: no managed ledger owns it, or the owner is unknown."""
    try:
        if _is_marked(custom, _VELA, _BROADCAST):
            return TopicName.parse(custom["topic"].decode()).managed_ledger_name
        if not _is_marked(custom, _APPLICATION, _COMPONENT):
            return None
        name = custom[_MANAGED_LEDGER].decode()
    except (KeyError, UnicodeDecodeError, InvalidTopicName):
        return None
    parts = name.split("/")
    if len(parts) != _NAME_PARTS or not all(parts) or parts[2] != "persistent":
        return None
    return name


def _is_marked(custom: Mapping[str, bytes], *marks: tuple[str, bytes]) -> bool:
    return all(custom.get(key) == value for key, value in marks)
