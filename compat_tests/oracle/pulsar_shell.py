"""`pulsar-shell`: many subcommands of `pulsar-admin` in one JVM, and what each of them printed."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Final

from compat_tests.oracle.distribution import pulsar_home

if TYPE_CHECKING:
    from pathlib import Path

    from compat_tests.oracle.server_process import ServerProcess

SECONDS_MAX: Final = 300.0
_STEP: Final = re.compile(r"^\[\d+/\d+\] Executing admin (.*)$")
_ENDS: Final = "Goodbye!"


def play(server: ServerProcess, lines: list[str], directory: Path) -> list[str]:
    """What each line printed, errors included, in their order.

    Raises: AssertionError: the shell did not play all of them.
    """
    directory.mkdir(exist_ok=True)
    configuration = directory / "client.conf"
    configuration.write_text(
        f"webServiceUrl={server.web_url}\nbrokerServiceUrl={server.service_url}\n"
    )
    commands = directory / "commands"
    commands.write_text("".join(f"admin {line}\n" for line in lines))
    done = subprocess.run(
        [
            str(pulsar_home() / "bin" / "pulsar-shell"),
            *("-c", str(configuration), "-f", str(commands), "-np"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env={**os.environ, "OPTS": f"-Duser.home={directory} -XX:TieredStopAtLevel=1"},
    )
    printed: list[list[str]] = []
    for line in done.stdout.splitlines():
        if _STEP.match(line):
            printed.append([])
        elif printed and line != _ENDS:
            printed[-1].append(line)
    assert len(printed) == len(lines), done.stdout[-2000:]
    return ["\n".join(each).strip() for each in printed]
