"""Frames of requests as values that can be compared."""

from __future__ import annotations

from protocol.plain_acks import PlainAck
from protocol.requests import ParsedRequest, Request


def value_of(frame):
    """What a request says; any other frame as it is."""
    if isinstance(frame, ParsedRequest | PlainAck):
        return frame.command()
    if isinstance(frame, Request):
        return type(frame).__name__, {
            name: getattr(frame, name)
            for kind in type(frame).__mro__
            for name in getattr(kind, "__slots__", ())
        }
    return frame


def read_all(decoder, data):
    """All frames that `data` completes, in all of its slices."""
    frames = decoder.feed(data)
    while decoder.is_left:
        frames += decoder.more()
    return frames
