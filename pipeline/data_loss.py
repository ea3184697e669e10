"""The decision of `failOnDataLoss`, in one place."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pipeline.options import SourceOptions

_log = logging.getLogger(__name__)


class DataLost(Exception):
    """Entries of the range are no longer there, or do not come; see `failOnDataLoss`."""


def report_loss(options: SourceOptions, text: str) -> None:
    """Raise or log. Raises: DataLost."""
    if options.fail_on_data_loss:
        raise DataLost(
            f"{text}. Some data may have been lost: it was deleted by retention, or the topic was "
            "deleted or recreated. Set failOnDataLoss=false to go on with what is there"
        )
    _log.warning("%s; going on, because failOnDataLoss is false", text)
