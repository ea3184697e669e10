"""Errors for which the broker itself ends a connection."""

from __future__ import annotations

from typing import final


@final
class ConnectionRefused(Exception):
    """The peer broke the protocol so that its connection cannot continue. The text says how.

    The session logs it, tells the peer with an ERROR command and closes this connection only.
    """
