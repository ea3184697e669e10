"""Any frames come out as they went in, however they are cut; any bytes are frames or one error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.socket_frames import (
    PATH_BYTES_MAX,
    Frame,
    FrameError,
    FrameReader,
    Kind,
    encode_frame,
)

BYTES_MAX = 4_096
frames = st.builds(
    Frame,
    number=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(Kind),
    path=st.text(st.characters(codec="utf-8"), max_size=40),
    value=st.binary(max_size=200),
    version=st.integers(-(2**63), 2**63 - 1),
)


@given(sent=st.lists(frames, max_size=6), cuts=st.lists(st.integers(1, 60), min_size=1))
def test_frames_survive_any_cut(sent, cuts):
    data = b"".join(map(encode_frame, sent))
    reader = FrameReader(BYTES_MAX)
    received, start, turn = [], 0, 0
    while start < len(data):
        end = start + cuts[turn % len(cuts)]
        received += reader.feed(data[start:end])
        start, turn = end, turn + 1
    assert received == sent


@given(data=st.binary(max_size=300))
def test_any_bytes_are_frames_or_one_error(data):
    reader = FrameReader(BYTES_MAX)
    try:
        received = reader.feed(data)
    except FrameError:
        return
    assert b"".join(map(encode_frame, received)) == data[: len(data) - len(reader._buffer)]


@given(frame=frames, position=st.integers(0, 400), bit=st.integers(0, 7))
def test_a_damaged_frame_is_another_frame_or_one_error(frame, position, bit):
    data = bytearray(encode_frame(frame))
    data[position % len(data)] ^= 1 << bit
    try:
        received = FrameReader(BYTES_MAX).feed(bytes(data))
    except FrameError:
        return
    assert len(received) <= 1


def test_a_frame_above_the_bound_is_refused_before_it_is_buffered():
    reader = FrameReader(BYTES_MAX)
    with pytest.raises(FrameError, match=str(BYTES_MAX)):
        reader.feed(encode_frame(Frame(1, Kind.PUT, "/a", b"x" * BYTES_MAX))[:4])


def test_a_path_above_the_bound_is_refused():
    with pytest.raises(FrameError, match=str(PATH_BYTES_MAX)):
        encode_frame(Frame(1, Kind.GET, "/" + "a" * PATH_BYTES_MAX))


def test_a_frame_by_the_byte():
    """The example of the format."""
    data = encode_frame(Frame(7, Kind.PUT, "/a", b"v", -1))
    assert data.hex(" ") == ("00 00 00 12 00 00 00 07 04 ff ff ff ff ff ff ff ff 00 02 2f 61 76")
