"""A cluster in the place of one server: which parts start, stop and end, and in which order."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from compat_tests.oracle.cluster_server import ClusterServer
from compat_tests.oracle.server_process import ServerFailed, ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SERVES = "import pathlib, time; pathlib.Path('ready').touch(); time.sleep(600)"


class Part(ServerProcess):
    """A Python text; ready when it has written the file `ready`. Its starts go to a list."""

    def __init__(self, directory: Path, name: str, starts: list[str], text: str = SERVES) -> None:
        super().__init__(directory / name, broker_port=1, web_port=1)
        self.name = name
        self._starts = starts
        self._text = text

    def command(self) -> list[str]:
        self._starts.append(self.name)
        (self.directory / "ready").unlink(missing_ok=True)
        return [sys.executable, "-c", self._text]

    def environment(self) -> dict[str, str]:
        return {}

    def working_directory(self) -> Path:
        return self.directory

    def is_ready(self) -> bool:
        return (self.directory / "ready").exists()


class Cluster(ClusterServer):
    """Useful to a client as soon as its broker is ready."""

    def is_ready(self) -> bool:
        return self.broker.is_ready()


@pytest.fixture
def starts() -> list[str]:
    return []


@pytest.fixture
def cluster(tmp_path: Path, starts: list[str]) -> Iterator[Cluster]:
    zookeeper, first, second, broker = (
        Part(tmp_path, name, starts) for name in ("zookeeper", "bookie-0", "bookie-1", "broker")
    )
    made = Cluster(
        tmp_path, zookeeper, [first, second], broker, lambda: starts.append("initialised")
    )
    yield made
    made.close()
    assert not any(part.is_running() for part in made.parts)


def test_bookies_start_on_metadata_and_the_broker_on_bookies(cluster: Cluster, starts: list[str]):
    cluster.start()
    assert starts[:2] == ["zookeeper", "initialised"]
    assert sorted(starts[2:4]) == ["bookie-0", "bookie-1"]
    assert starts[4:] == ["broker"]
    assert cluster.is_running()


def test_a_stop_ends_the_broker_alone(cluster: Cluster, starts: list[str]):
    cluster.start()
    cluster.stop()
    assert [part.is_running() for part in cluster.parts] == [True, True, True, False]
    assert not cluster.is_running()
    assert cluster.how_it_ended() is None
    starts.clear()
    cluster.start()
    assert starts == ["broker"]


def test_a_kill_ends_bookies_too_and_the_metadata_stay(cluster: Cluster, starts: list[str]):
    cluster.start()
    cluster.kill()
    assert [part.is_running() for part in cluster.parts] == [True, False, False, False]
    starts.clear()
    cluster.start()
    assert sorted(starts) == ["bookie-0", "bookie-1", "broker"]
    assert starts[-1] == "broker"


def test_a_part_that_ended_by_itself_is_named_and_starts_again(cluster: Cluster):
    cluster.start()
    psutil.Process(cluster.bookies[1].pid).kill()
    deadline = time.monotonic() + 10.0
    while cluster.is_running():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert cluster.how_it_ended() == "bookie-1 ended by itself with -9"
    cluster.start()
    assert cluster.is_running()
    assert cluster.how_it_ended() is None


def test_a_part_that_does_not_start_fails_the_start_and_leaves_no_other(
    tmp_path: Path, starts: list[str]
):
    zookeeper, bookie = (Part(tmp_path, name, starts) for name in ("zookeeper", "bookie"))
    broker = Part(tmp_path, "broker", starts, "import sys; print('no room'); sys.exit(3)")
    cluster = Cluster(tmp_path, zookeeper, [bookie], broker, lambda: None)
    try:
        with pytest.raises(ServerFailed, match=r"(?s)broker ended by itself with 3.*no room"):
            cluster.start()
        assert not bookie.is_running()
    finally:
        cluster.close()
    assert not zookeeper.is_running()
