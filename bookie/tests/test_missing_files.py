"""Each file of a bookie that is gone is refused or named at start, or nothing is lost with it."""

from __future__ import annotations

import shutil

from structlog.testing import capture_logs

from bookie.api import Status
from bookie.bookie import Bookie
from bookie.errors import StorageError
from bookie.tests.conftest import body_or_status, whole
from bookie.tests.test_index_rebuild import ENTRIES, config_of, fill


async def wrong_answers(bookie):
    """The answers for entries that are not as they were written."""
    found = set()
    for ledger_id in range(4):
        for entry_id in range(ENTRIES):
            answer = await body_or_status(bookie, ledger_id, entry_id)
            if answer != whole(ledger_id, entry_id, b"x" * 400):
                found.add(answer)
    return found


async def test_no_file_is_lost_without_a_word(tmp_path):
    before = tmp_path / "before"
    await fill(before)
    files = [path.relative_to(before) for path in before.rglob("*") if path.is_file()]
    outcomes = {"refused": set(), "named": set(), "without effect": set()}
    for file in files:
        directory = tmp_path / "now"
        shutil.copytree(before, directory)
        (directory / file).unlink()
        with capture_logs() as lines:
            try:
                bookie = await Bookie.open(config_of(directory))
            except StorageError:
                outcomes["refused"].add(file.name)
            else:
                named = any(str(directory / file) in str(line) for line in lines)
                wrong = await wrong_answers(bookie)
                assert wrong <= ({Status.IO_ERROR} if named else set()), file
                assert bookie._handles[1].fenced, file
                await bookie.aclose()
                outcomes["named" if named else "without effect"].add(file.name)
        shutil.rmtree(directory)
    assert outcomes["named"] == {"1.log", "2.log", "3.log", "entryLogs"}
    assert {"VERSION", "CURRENT"} <= outcomes["refused"]
    assert any(name.endswith(".txn") for name in outcomes["refused"])
