"""Brokers and bookies of this tree under one parent: `vela standalone --brokers --bookies`."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import psutil

from compat_tests.oracle.distribution import TREE
from compat_tests.oracle.server_process import ServerProcess

if TYPE_CHECKING:
    from pathlib import Path

READY_LINE = "vela standalone ready:"
_STARTED = re.compile(r"a child is started +child=(\S+) process=(\d+)")
_URLS = re.compile(rf"^{READY_LINE} pulsar://(\S+) http://(\S+)$", re.MULTILINE)


class VelaMachine(ServerProcess):
    """Ready when it has printed its ready line. All ports are free ones, and new at each start."""

    name = "vela-machine"

    def __init__(
        self,
        directory: Path,
        brokers: int,
        bookies: int,
        configuration: dict[str, object] | None = None,
    ) -> None:
        super().__init__(directory, 0, 0)
        self._brokers, self._bookies = brokers, bookies
        keys = {"brokerServicePort": 0, "webServicePort": 0, "bookiePort": 0}
        self.configuration_path = directory / "standalone.conf"
        self.configuration_path.write_text(
            "".join(f"{key}={value}\n" for key, value in (keys | (configuration or {})).items())
        )

    def is_ready(self) -> bool:
        return READY_LINE in self.log_of_start()

    def command(self) -> list[str]:
        return [
            *(sys.executable, "-m", "cli", "standalone"),
            *("--data-dir", str(self.directory / "data")),
            *("--config", str(self.configuration_path)),
            *("--brokers", str(self._brokers), "--bookies", str(self._bookies)),
        ]

    def environment(self) -> dict[str, str]:
        return {}

    def working_directory(self) -> Path:
        return TREE

    @property
    def service_url(self) -> str:
        """Of all brokers."""
        return f"pulsar://{self._addresses()[0]}"

    @property
    def web_urls(self) -> list[str]:
        """One of each broker."""
        return [f"http://{each}" for each in self._addresses()[1].split(",")]

    @property
    def web_url(self) -> str:
        return self.web_urls[0]

    def _addresses(self) -> tuple[str, str]:
        found = _URLS.search(self.log_of_start())
        assert found is not None, "the machine is not ready"
        return found[1], found[2]

    def children(self) -> dict[str, psutil.Process]:
        """The processes that run now, by their names: `broker-1`, `bookie-1` and so on."""
        found: dict[str, psutil.Process] = {}
        for name, process_id in _STARTED.findall(self.log_of_start()):
            try:
                process = psutil.Process(int(process_id))
                found[name] = process
                if process.status() == psutil.STATUS_ZOMBIE:
                    del found[name]
            except psutil.NoSuchProcess:
                found.pop(name, None)
        return found

    def cpu_by_kind(self) -> dict[str, float]:
        """CPU seconds of the brokers, the bookies and the parent so far, without those of processes
        that have ended."""
        spent: dict[str, float] = defaultdict(float)
        for name, process in [("parent-0", psutil.Process(self.pid)), *self.children().items()]:
            times = process.cpu_times()
            spent[name.rpartition("-")[0]] += times.user + times.system
        return spent
