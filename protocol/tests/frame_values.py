"""Frames of requests as values that can be compared."""

from __future__ import annotations

from protocol.plain_acks import PlainAck
from protocol.requests import ParsedRequest, Request
from protocol.send_fields import Send


def value_of(frame):
    """What a request says; any other frame as it is."""
    if isinstance(frame, ParsedRequest | PlainAck):
        return frame.command()
    if isinstance(frame, Request | Send):
        names = [name for name in dir(frame) if not name.startswith("_")]
        values = {name: getattr(frame, name) for name in names}
        return type(frame).__name__, {
            name: value for name, value in values.items() if not callable(value)
        }
    return frame


def read_all(decoder, data):
    """All frames that `data` completes, in all of its slices."""
    frames = decoder.feed(data)
    while decoder.is_left:
        frames += decoder.more()
    return frames
