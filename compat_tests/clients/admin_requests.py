"""Admin requests as a client puts them on the wire: the path undecoded, the answer undigested.

A trace must not tell ids and times. `told` therefore names ledgers by the order in which they were
first seen (`ledger 0`, `ledger 1`, ...) and leaves timestamps out; everything else stays.
"""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

REQUEST_TIMEOUT_SECONDS = 30.0
HEADERS = {"Accept": "application/json", "User-Agent": "Pulsar-Java-v2.4.2"}
LATEST_NUMBER = 2**63 - 1
EARLIEST = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
LATEST = {"ledgerId": LATEST_NUMBER, "entryId": LATEST_NUMBER, "partitionIndex": -1}


class AdminRequests:
    """Requests to one server, with the names its ledgers have in the trace."""

    def __init__(self, web_url: str, content_type: str = "application/json") -> None:
        self._content_type = content_type
        self._address = urlsplit(web_url).netloc
        self._ledgers: dict[int, str] = {}

    def raw(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Status and text of the answer."""
        headers = dict(HEADERS)
        data = None
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            headers["Content-Type"] = self._content_type
        connection = http.client.HTTPConnection(self._address, timeout=REQUEST_TIMEOUT_SECONDS)
        try:
            connection.request(method, path, data, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def __call__(self, method: str, path: str, body: Any = None) -> list[Any]:
        """Status and the answer as it may stand in a trace."""
        status, text = self.raw(method, path, body)
        return [status, self.told(decoded(text))]

    def told(self, value: Any) -> Any:
        """An answer without ids and times."""
        if isinstance(value, dict):
            return {
                key: self._ledger(entry) if key == "ledgerId" else self.told(entry)
                for key, entry in value.items()
                if key != "timestamp"
            }
        return [self.told(entry) for entry in value] if isinstance(value, list) else value

    def _ledger(self, number: int) -> str | int:
        if number in (-1, LATEST_NUMBER):
            return number
        return self._ledgers.setdefault(number, f"ledger {len(self._ledgers)}")


def decoded(text: str) -> Any:
    """JSON as its value; other text as it is."""
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def topic_path(topic: str) -> str:
    """`/admin/v2/persistent/tenant/namespace/name` of a topic."""
    return "/admin/v2/" + topic.replace("://", "/")


def schema_path(topic: str) -> str:
    """Where the schema of a topic is read and posted."""
    return "/admin/v2/schemas/" + topic.partition("://")[2] + "/schema"
