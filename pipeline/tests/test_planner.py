"""Plans of a stream while topics come and go."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from pipeline.data_loss import DataLost
from pipeline.offsets import NOTHING_YET, Bound, Offset, from_checkpoint
from pipeline.options import Connection, SourceOptions
from pipeline.planner import StreamPlanner

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE = "persistent://public/default/"
OLD, NEW = f"{NAMESPACE}old", f"{NAMESPACE}new"


class _Broker(BaseHTTPRequestHandler):
    """The topics of one namespace, each with ten entries of 1 MB in one ledger."""

    topics: list[str]

    def do_GET(self) -> None:
        parts = self.path.split("/")
        found: object = None
        if len(parts) == 6:
            found = self.topics
        elif NAMESPACE + parts[6] in self.topics:
            found = {"ledgerId": 7, "entryId": 9}
            if parts[-1] == "internalStats":
                found = {
                    "ledgers": [{"ledgerId": 7, "entries": 0, "size": 0}],
                    "state": "LedgerOpened",
                    "currentLedgerEntries": 10,
                    "currentLedgerSize": 10 << 20,
                    "cursors": {},
                }
        content = json.dumps(found).encode()
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def topics() -> list[str]:
    return [OLD]


@pytest.fixture
def planner(topics: list[str]) -> Iterator[StreamPlanner]:
    handler = type("Handler", (_Broker,), {"topics": topics})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        options = SourceOptions(
            Connection(admin_url=f"http://127.0.0.1:{server.server_port}"),
            topics_pattern=f"{NAMESPACE}.*",
            starting=Bound("earliest"),
            fail_on_data_loss=True,
            retention_anchor=False,
            bytes_per_partition_max=3 << 20,
        )
        yield StreamPlanner(options)
        server.shutdown()
        thread.join()


def test_a_topic_made_while_available_now_starts_is_left_for_the_next_run(
    planner: StreamPlanner, topics: list[str]
) -> None:
    planner.freeze()
    topics.append(NEW)

    first = planner.latest(planner.initial(), limited=False)
    second = planner.latest(first, limited=False)

    assert from_checkpoint(first) == {OLD: Offset(7, 9), NEW: NOTHING_YET}
    assert second == first


def test_a_topic_deleted_before_available_now_starts_is_data_loss(
    planner: StreamPlanner, topics: list[str]
) -> None:
    topics.append(NEW)
    start = planner.initial()
    topics.remove(NEW)
    planner.freeze()

    with pytest.raises(DataLost, match=f"{NEW} was deleted"):
        planner.latest(start, limited=False)


def test_a_topic_deleted_while_a_stream_runs_is_data_loss(
    planner: StreamPlanner, topics: list[str]
) -> None:
    topics.append(NEW)
    start = planner.initial()
    topics.remove(NEW)

    with pytest.raises(DataLost, match=f"{NEW} was deleted"):
        planner.latest(start, limited=False)


def test_a_stream_has_tasks_of_bounded_bytes_and_the_same_ones_again(
    planner: StreamPlanner,
) -> None:
    start = planner.initial()
    end = json.loads(json.dumps(planner.latest(start, limited=False)))

    tasks = planner.tasks(start, end)

    assert [sum(part.entries for part in task) for task in tasks] == [2, 3, 2, 3]
    assert planner.tasks(start, end) == tasks
    assert planner.latest(end, limited=False) == end


def test_a_checkpoint_without_sizes_of_tasks_is_planned_as_it_was(planner: StreamPlanner) -> None:
    start = planner.initial()
    end = planner.latest(start, limited=False)
    del end["n"]

    assert len(planner.tasks(start, end)) == 1
