"""The files that a process of the load generator leaves."""

from __future__ import annotations

from cli.perf.worker import prepare_recordings, recording_path


def test_a_run_with_fewer_processes_leaves_no_recording_of_the_one_before(tmp_path):
    directory = tmp_path / "new" / "samples"
    prepare_recordings(directory)
    for number in (0, 1, 12):
        recording_path(directory, number).write_text("old")
    others = ("notes.csv", "part-1.csv.bak", "part-x.csv", "my-part-1.csv")
    for name in others:
        (directory / name).write_text("kept")

    prepare_recordings(directory)

    assert {path.name for path in directory.iterdir()} == set(others)
