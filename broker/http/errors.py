"""From refusals to HTTP: the one table of statuses, and the shape of every error body.

Pulsar answers `{"reason": "..."}`; clients show the reason and compare some of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from bookie.api import BookieError
from broker.ground.refusal import Refusal
from broker.topics.subscription.request import InvalidProperty
from broker.topics.topic.errors import TopicBusy
from protocol import pulsar_api_pb2 as pb
from protocol.errors import BrokerError
from web.errors import RequestRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

log = structlog.get_logger()

_STATUS_OF: Final[Mapping[int, int]] = {
    pb.TopicNotFound: 404,
    pb.SubscriptionNotFound: 404,
    pb.ConsumerNotFound: 404,
    pb.AuthenticationError: 401,
    pb.AuthorizationError: 401,
    pb.InvalidTopicName: 412,
    pb.ConsumerBusy: 412,
    pb.ProducerBusy: 412,
    pb.IncompatibleSchema: 409,
    pb.NotAllowedError: 405,
    pb.TooManyRequests: 429,
    pb.ServiceNotReady: 503,
    pb.TopicTerminatedError: 412,
}


def status_and_reason(error: Exception) -> tuple[int, str]:
    """The answer for an error. An unexpected error is logged with its trace."""
    if isinstance(error, Refusal):
        return error.status, error.reason
    if isinstance(error, RequestRefused):
        return error.status, error.reason
    if isinstance(error, TopicBusy):
        return 412, error.message
    if isinstance(error, InvalidProperty):
        return 400, error.message
    if isinstance(error, BrokerError):
        return _STATUS_OF.get(error.server_error, 500), error.message
    if isinstance(error, BookieError):
        return 500, f"storage refused the request: {error}"
    log.error("admin request failed", exc_info=error)
    return 500, f"{type(error).__name__}: {error}"
