"""The text of a ledger's metadata as BookKeeper prints it and Pulsar's admin API hands it out.

    LedgerMetadata{formatVersion=3, ensembleSize=1, writeQuorumSize=1, ackQuorumSize=1,
    state=CLOSED, length=123, lastEntryId=9, digestType=CRC32C, password=OMITTED,
    ensembles={0=[host:3181]}, customMetadata={key=base64:dmFsdWU=}}

The password is never in it. `length` and `lastEntryId` are there only once the ledger is closed.

Source: the answers of Apache Pulsar 4.0.8 to `internalStats?metadata=true`.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final

from protocol.bookkeeper.digests import DigestType
from protocol.bookkeeper.ledger_metadata import InvalidMetadata, LedgerMetadata, LedgerState

if TYPE_CHECKING:
    from collections.abc import Mapping

_FIELD: Final = re.compile(r"(\w+)=(\{[^{}]*\}|[^,{}]*)(?:, |$)")
_SEGMENT: Final = re.compile(r"(\d+)=\[([^\]]*)\](?:, |$)")
_CUSTOM: Final = re.compile(r"([^=]+)=base64:([A-Za-z0-9+/=]*)(?:, |$)")
_DIGEST_NAMES: Final = {"MAC": "HMAC"}
"""Names of BookKeeper's client API that its metadata calls otherwise."""


def ledger_metadata_text(
    metadata: LedgerMetadata, addresses: Mapping[str, str] | None = None
) -> str:
    """The text; `addresses` says where a bookie is reached that the record names otherwise."""
    known = addresses or {}
    fields: dict[str, object] = {
        "formatVersion": 3,
        "ensembleSize": metadata.ensemble_size,
        "writeQuorumSize": metadata.write_quorum_size,
        "ackQuorumSize": metadata.ack_quorum_size,
        "state": metadata.state.name,
    }
    if metadata.is_closed:
        fields |= {"length": metadata.length, "lastEntryId": metadata.last_entry_id}
    fields |= {"digestType": metadata.digest_type.name, "password": "OMITTED"}
    segments = [
        f"{first}=[{', '.join(known.get(bookie, bookie) for bookie in bookies)}]"
        for first, bookies in metadata.ensembles.items()
    ]
    custom = [
        f"{key}=base64:{b64encode(value).decode()}"
        for key, value in metadata.custom_metadata.items()
    ]
    fields |= {"ensembles": f"{{{', '.join(segments)}}}"}
    fields |= {"customMetadata": f"{{{', '.join(custom)}}}"}
    return "LedgerMetadata{" + ", ".join(f"{key}={value}" for key, value in fields.items()) + "}"


def parse_ledger_metadata_text(text: str) -> LedgerMetadata:
    """The metadata that a text shows; without password, creation time and token.

    Raises: InvalidMetadata: it is no such text, or lacks what is needed to read the ledger.
    """
    if not (text.startswith("LedgerMetadata{") and text.endswith("}")):
        raise InvalidMetadata(f"no ledger metadata: {text[:200]!r}")
    fields: dict[str, str] = dict(_FIELD.findall(text[len("LedgerMetadata{") : -1]))
    try:
        state = LedgerState[fields["state"]]
        digest_type = _DIGEST_NAMES.get(fields["digestType"], fields["digestType"])
        ensembles = {
            int(first): tuple(bookies.split(", "))
            for first, bookies in _SEGMENT.findall(fields["ensembles"][1:-1])
        }
        custom = _CUSTOM.findall(fields.get("customMetadata", "{}")[1:-1])
        write_quorum_size = int(fields["writeQuorumSize"])
        is_closed = state is LedgerState.CLOSED
        metadata = LedgerMetadata(
            ensemble_size=int(fields["ensembleSize"]),
            write_quorum_size=write_quorum_size,
            ack_quorum_size=int(fields.get("ackQuorumSize", write_quorum_size)),
            ensembles=ensembles,
            digest_type=DigestType[digest_type],
            state=state,
            last_entry_id=int(fields["lastEntryId"]) if is_closed else -1,
            length=int(fields["length"]) if is_closed else 0,
            custom_metadata={key: b64decode(value) for key, value in custom},
        )
    except (KeyError, ValueError) as error:
        raise InvalidMetadata(f"ledger metadata without usable {error}: {text[:500]!r}") from error
    if not ensembles:
        raise InvalidMetadata(f"ledger metadata without ensembles: {text[:500]!r}")
    return metadata
