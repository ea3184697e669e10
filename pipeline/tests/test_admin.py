"""Admin calls outlive a restart of the broker and find the owner of a topic; a refusal is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.admin import Admin, AdminError
from pipeline.offsets import Offset
from pipeline.options import Connection
from pipeline.tests.http_server import QuietHandler, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOPIC = "persistent://public/default/t"


class _Restarting(QuietHandler):
    """Answers the first call with 503 or half an answer, and the next ones as it was told."""

    calls: list[tuple[str, str]]
    status: int
    is_cut = False

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.calls.append((self.command, self.path))
        content = b'{"reason": "no", "ledgerId": 1, "entryId": 2}'
        is_first = len(self.calls) == 1
        self.send_response(503 if is_first and not self.is_cut else self.status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:9] if is_first and self.is_cut else content)

    do_GET = do_PUT = do_POST = _answer


@pytest.fixture
def handler() -> type[_Restarting]:
    return type("Handler", (_Restarting,), {"calls": [], "status": 200})


@pytest.fixture
def admin(handler: type[_Restarting]) -> Iterator[Admin]:
    with serving(handler) as url:
        yield Admin(Connection(admin_url=url))


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


def test_a_call_is_repeated_when_the_broker_stops_in_the_middle_of_its_answer(
    admin: Admin, handler: type[_Restarting]
) -> None:
    handler.is_cut = True

    assert admin.last_offset(TOPIC) == Offset(1, 2)
    assert len(handler.calls) == 2


def test_a_refusal_is_not_repeated(admin: Admin, handler: type[_Restarting]) -> None:
    handler.status = 400
    with pytest.raises(AdminError, match="400 no"):
        admin.move_subscription(TOPIC, "s", Offset(1, 2))

    assert len(handler.calls) == 2


class _Owner(QuietHandler):
    """Takes every call."""

    calls: list[tuple[str, str, bytes, str | None]]

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.calls.append((self.command, self.path, body, self.headers["Authorization"]))
        content = b'{"ledgerId": 1, "entryId": 2}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = _answer


class _Other(_Owner):
    """Sends every call on, as a broker does that does not own the topic."""

    owner_url: str

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.calls.append((self.command, self.path, body, self.headers["Authorization"]))
        self.send_response(307)
        self.send_header("Location", f"{self.owner_url}{self.path}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_PUT = do_POST = do_DELETE = _answer


@pytest.fixture
def owner() -> type[_Owner]:
    return type("Owner", (_Owner,), {"calls": []})


@pytest.fixture
def other() -> type[_Other]:
    return type("Other", (_Other,), {"calls": [], "owner_url": ""})


@pytest.mark.parametrize(
    "call",
    [
        lambda admin: admin.last_offset(TOPIC),
        lambda admin: admin.create_subscription(TOPIC, "a/b"),
        lambda admin: admin.move_subscription(TOPIC, "s", Offset(1, 2)),
        lambda admin: admin.delete_subscription(TOPIC, "s"),
        lambda admin: admin.register_schema(TOPIC, "STRING", ""),
    ],
)
def test_the_owner_of_a_topic_gets_the_same_call_when_another_broker_was_asked(
    owner: type[_Owner], other: type[_Other], call: Callable[[Admin], object]
) -> None:
    with serving(owner) as other.owner_url, serving(other) as url:
        call(Admin(Connection(admin_url=url, token="secret")))

    assert len(owner.calls) == 1
    assert owner.calls == other.calls
    assert owner.calls[0][3] == "Bearer secret"


def test_brokers_that_send_a_call_to_each_other_are_not_asked_for_ever(
    other: type[_Other],
) -> None:
    with serving(other) as other.owner_url:
        admin = Admin(Connection(admin_url=other.owner_url))
        with pytest.raises(AdminError, match="307"):
            admin.delete_subscription(TOPIC, "s")

    assert 1 < len(other.calls) <= 20


def test_an_owner_that_does_not_answer_is_named(owner: type[_Owner], other: type[_Other]) -> None:
    with serving(owner) as gone_url:
        other.owner_url = gone_url
    with serving(other) as url, pytest.raises(AdminError, match=f"^{gone_url} does not answer"):
        Admin(Connection(admin_url=url)).delete_subscription(TOPIC, "s")
