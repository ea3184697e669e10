"""A real process on a real disk, killed without warning: what it acknowledged is there."""

from __future__ import annotations

import subprocess
import sys

import pytest
import trio

from bookie.bookie import Bookie
from bookie.config import BookieConfig
from bookie.tests.conftest import KEY, entry, whole

ENTRIES_PER_TURN = 20


def config_of(directory):
    return BookieConfig(
        journalDirectories=(f"{directory}/j",),
        ledgerDirectories=(f"{directory}/l",),
        dbStorage_writeCacheMaxSizeMb=1,
        flushInterval=20,
        logSizeLimit=1 << 20,
        journalMaxSizeMB=1,
    )


class PrintingSink:
    def on_add_replies(self, status, ledger_id, first_entry_id, count):
        assert status == 0
        for entry_id in range(first_entry_id, first_entry_id + count):
            sys.stdout.write(f"{ledger_id} {entry_id}\n")

    def on_replies_end(self):
        sys.stdout.flush()


async def write_for_ever(directory, first):
    bookie = await Bookie.open(config_of(directory))
    async with trio.open_nursery() as nursery:
        await nursery.start(bookie.run)
        sink = PrintingSink()
        for turn in range(1_000_000):
            for number in range(ENTRIES_PER_TURN):
                entry_id = first + turn * ENTRIES_PER_TURN + number
                bookie.add_entry(7, entry_id, entry(7, entry_id, b"k" * 900), KEY, 0, sink)
            await bookie.force_ledger(7)


@pytest.mark.parametrize("kill_after", [1, 3000])
async def test_sigkill_loses_nothing_acknowledged(tmp_path, kill_after):
    acked = set()
    first = 0
    for _life in range(2):
        command = [sys.executable, "-m", "bookie.tests.test_kill", str(tmp_path), str(first)]
        process = subprocess.Popen(  # noqa: ASYNC220
            command, stdout=subprocess.PIPE, text=True
        )
        with process:
            for lines, line in enumerate(process.stdout, 1):
                if line.startswith("7 ") and line.endswith("\n"):
                    acked.add(int(line.split()[1]))
                if lines == kill_after:
                    process.kill()
        first = max(acked) + 1 + ENTRIES_PER_TURN
    bookie = await Bookie.open(config_of(tmp_path))
    for entry_id in sorted(acked):
        assert await bookie.read_entry(7, entry_id) == whole(7, entry_id, b"k" * 900)
    await bookie.aclose()


if __name__ == "__main__":
    trio.run(write_for_ever, sys.argv[1], int(sys.argv[2]))
