"""The benchmark tells a disk that stood still from a server that was slow."""

from __future__ import annotations

import pytest

from bench.device import DeviceWatch, Sample, sample_of, still_seconds_max

TEXT = """\
   7       0 loop0 14 0 28 1 0 0 0 0 0 4 1 0 0 0 0 0 0
 254       0 vda 100 1 2000 30 50 2 900 70 3 400 100 0 0 0 0 0 0
 254       1 vda1 7 0 28 1 9 0 0 0 0 4 1 0 0 0 0 0 0
"""


def test_what_a_device_has_completed_is_its_reads_and_writes():
    assert sample_of(TEXT, (254, 0), 1.5) == Sample(1.5, 150, 3)
    assert sample_of(TEXT, (254, 1), 1.5) == Sample(1.5, 16, 0)
    assert sample_of(TEXT, (8, 0), 1.5) is None


@pytest.mark.parametrize(
    ("samples", "longest"),
    [
        ([], 0.0),
        ([(0.0, 1, 0), (9.0, 1, 0)], 0.0),
        ([(0.0, 1, 1), (0.1, 1, 2), (0.4, 1, 1), (0.5, 2, 1), (0.6, 2, 1)], 0.4),
        ([(0.0, 1, 0), (0.1, 1, 1), (0.2, 1, 0), (0.3, 1, 1), (0.9, 2, 0)], 0.0),
    ],
    ids=["nothing", "idle", "still", "busy in between"],
)
def test_a_device_stands_still_while_requests_wait_and_none_is_completed(samples, longest):
    assert still_seconds_max(Sample(*each) for each in samples) == pytest.approx(longest)


def test_a_watch_ends_with_what_it_watched(tmp_path):
    with DeviceWatch(tmp_path) as watch:
        pass
    assert watch.still_ms_max is None or watch.still_ms_max >= 0.0
