"""Reads what a key of the configuration names: a `data:` or `file:` URL, a path, or base64.

The order of the guesses is Pulsar's. What is read may be a secret, so errors never show it, nor a
value that may itself be one.
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import Final
from urllib.parse import unquote, unquote_to_bytes, urlsplit

from security.authentication.identity import ProviderRefused
from settings.plain_file import read_plain_file

_FILE_BYTES_MAX: Final = 16 * 1024 * 1024
"""More than a key has, and enough for the passwords of 100,000 users."""


def read_source(key: str, source: str) -> bytes:
    """The bytes that `source`, the value of `key`, names.

    Raises: ProviderRefused: nothing can be read there.
    """
    if source.startswith("data:"):
        return _of_data_url(key, source)
    if source.startswith("file:"):
        return _of_file(key, Path(unquote(urlsplit(source).path)))
    path = Path(source)
    try:
        if path.exists():
            return _of_file(key, path)
    except (OSError, ValueError):
        pass  # too long for a name of a file: base64, then
    try:
        return base64.b64decode(source, validate=True)
    except (binascii.Error, ValueError):
        raise ProviderRefused(
            f"{key} names neither a file that exists nor base64; "
            "give file:///path, data:;base64,... or a path"
        ) from None


def _of_data_url(key: str, url: str) -> bytes:
    """RFC 2397."""
    kind, comma, data = url.removeprefix("data:").partition(",")
    try:
        if not comma:
            raise ValueError
        if kind.endswith(";base64"):
            return base64.b64decode(unquote_to_bytes(data), validate=True)
        return unquote_to_bytes(data)
    except (binascii.Error, ValueError):
        raise ProviderRefused(f"{key} is no valid data: URL; give data:;base64,...") from None


def _of_file(key: str, path: Path) -> bytes:
    try:
        content = read_plain_file(path, _FILE_BYTES_MAX)
    except OSError as error:
        raise ProviderRefused(f"{key}: cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise ProviderRefused(f"{key} is no path of a file") from None
    if len(content) > _FILE_BYTES_MAX:
        raise ProviderRefused(f"{key}: {path} is larger than {_FILE_BYTES_MAX:,} bytes")
    return content
