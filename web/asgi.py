"""The types of ASGI 3.0, between a server and the application that it calls.

Source: https://asgi.readthedocs.io/en/latest/specs/www.html. Only its HTTP part is spoken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
"""One request: its method, path, query, headers and ends."""
Message = MutableMapping[str, Any]
"""A piece of a request or of an answer."""
Receive = Callable[[], Awaitable[Message]]
"""Gives the next piece of the request's body."""
Send = Callable[[Message], Awaitable[None]]
"""Takes the start of the answer, or the next piece of its body."""
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
"""Answers one request. An answer is itself such an application: the one that sends it."""
