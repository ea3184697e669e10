"""Dates as the library for mail writes them."""

from __future__ import annotations

from email.utils import formatdate

from hypothesis import given
from hypothesis import strategies as st

from web.dates import http_date


@given(st.integers(0, 4_102_444_800))
def test_a_date_is_that_of_the_mail_library(seconds: int) -> None:
    assert http_date(seconds) == formatdate(seconds, usegmt=True)
