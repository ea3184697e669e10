"""Administrative requests that follow redirects from broker to broker, as pulsar-admin does."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from compat_tests.oracle.server_process import ServerProcess

REDIRECTS_MAX = 6
TIMEOUT_SECONDS = 60.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """urllib follows a 307 of GET and HEAD only."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


def ask(server: ServerProcess, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and decoded answer (text when it is no JSON) of the broker that answers in the end.

    Raises: OSError: a broker did not answer, or brokers send it around in circles.
    """
    url = server.web_url + path
    data = None if body is None else json.dumps(body).encode()
    for _ in range(REDIRECTS_MAX):
        request = urllib.request.Request(url, data, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        try:
            with _OPENER.open(request, timeout=TIMEOUT_SECONDS) as answer:
                return answer.status, _decoded(answer.read())
        except urllib.error.HTTPError as refused:
            with refused:
                if refused.code != 307:
                    return refused.code, _decoded(refused.read())
                url = refused.headers["Location"]
    raise OSError(f"{method} {path} is sent around in circles")


def _decoded(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return raw.decode(errors="replace")
