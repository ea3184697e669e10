"""Admin calls outlive a restart of the broker, and a refusal is told at once."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from pipeline.admin import Admin, AdminError
from pipeline.offsets import Offset
from pipeline.options import Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "persistent://public/default/t"


class _Restarting(BaseHTTPRequestHandler):
    """Answers the first call with 503 and the next ones as it was told."""

    calls: list[tuple[str, str]]
    status: int

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.calls.append((self.command, self.path))
        content = b'{"reason": "no", "ledgerId": 1, "entryId": 2}'
        self.send_response(503 if len(self.calls) == 1 else self.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = _answer

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def handler() -> type[_Restarting]:
    return type("Handler", (_Restarting,), {"calls": [], "status": 200})


@pytest.fixture
def admin(handler: type[_Restarting]) -> Iterator[Admin]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Admin(Connection(admin_url=f"http://127.0.0.1:{server.server_port}"))
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.last_offset(TOPIC),
        lambda admin: admin.create_subscription(TOPIC, "s"),
        lambda admin: admin.move_subscription(TOPIC, "s", Offset(1, 2)),
        lambda admin: admin.register_schema(TOPIC, "STRING", ""),
    ],
)
def test_a_call_is_repeated_while_the_broker_restarts(
    admin: Admin, handler: type[_Restarting], call: Callable[[Admin], object]
) -> None:
    call(admin)

    first, second = handler.calls
    assert first == second


def test_a_refusal_is_not_repeated(admin: Admin, handler: type[_Restarting]) -> None:
    handler.status = 400
    with pytest.raises(AdminError, match="400 no"):
        admin.move_subscription(TOPIC, "s", Offset(1, 2))

    assert len(handler.calls) == 2
