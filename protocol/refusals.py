"""The answer that refuses a request, in the form its client waits for: not ERROR for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol import pulsar_api_pb2 as pb
from protocol.command_frames import command_frame
from protocol.decoding import COMMAND_FIELDS
from protocol.templates import UINT64_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

_Type = pb.BaseCommand

NO_REQUEST: Final = UINT64_MAX
"""Request id of commands that answer none, such as a CLOSE_CONSUMER of the broker's own accord."""

_ANSWERS: Final[Mapping[int, pb.BaseCommand.Type]] = {
    _Type.ACK: _Type.ACK_RESPONSE,
    _Type.PARTITIONED_METADATA: _Type.PARTITIONED_METADATA_RESPONSE,
    _Type.LOOKUP: _Type.LOOKUP_RESPONSE,
    _Type.CONSUMER_STATS: _Type.CONSUMER_STATS_RESPONSE,
    _Type.GET_SCHEMA: _Type.GET_SCHEMA_RESPONSE,
    _Type.GET_OR_CREATE_SCHEMA: _Type.GET_OR_CREATE_SCHEMA_RESPONSE,
    _Type.TC_CLIENT_CONNECT_REQUEST: _Type.TC_CLIENT_CONNECT_RESPONSE,
    _Type.NEW_TXN: _Type.NEW_TXN_RESPONSE,
    _Type.ADD_PARTITION_TO_TXN: _Type.ADD_PARTITION_TO_TXN_RESPONSE,
    _Type.ADD_SUBSCRIPTION_TO_TXN: _Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
    _Type.END_TXN: _Type.END_TXN_RESPONSE,
    _Type.END_TXN_ON_PARTITION: _Type.END_TXN_ON_PARTITION_RESPONSE,
    _Type.END_TXN_ON_SUBSCRIPTION: _Type.END_TXN_ON_SUBSCRIPTION_RESPONSE,
}
"""Requests whose refusal is a command of their own; all others are refused with ERROR."""

_LONG_FIELD_NAMES: Final = frozenset(
    {
        _Type.CONSUMER_STATS_RESPONSE,
        _Type.GET_SCHEMA_RESPONSE,
        _Type.GET_OR_CREATE_SCHEMA_RESPONSE,
    }
)
"""Answers that have error_code and error_message instead of error and message."""


def request_id_of(command: pb.BaseCommand) -> int | None:
    """The request id of a command, None when it has none and so expects no answer."""
    content = getattr(command, COMMAND_FIELDS[command.type])
    if "request_id" not in content.DESCRIPTOR.fields_by_name or not content.HasField("request_id"):
        return None
    request_id: int = content.request_id
    return request_id


def refusal(command: pb.BaseCommand, server_error: pb.ServerError, message: str) -> bytes | None:
    """The answer that tells the sender of `command` that it is refused.

    None for commands that cannot be answered: FLOW, REDELIVER_UNACKNOWLEDGED_MESSAGES, ACK without
    request id, and the like.
    """
    kind = command.type
    if kind == _Type.SEND:
        return command_frame(
            _Type.SEND_ERROR,
            producer_id=command.send.producer_id,
            sequence_id=command.send.sequence_id,
            error=server_error,
            message=message,
        )
    if kind in (_Type.CONNECT, _Type.AUTH_RESPONSE):
        request_id: int | None = NO_REQUEST
    else:
        request_id = request_id_of(command)
    if request_id is None:
        return None
    answer = _ANSWERS.get(kind, _Type.ERROR)
    if answer in _LONG_FIELD_NAMES:
        return command_frame(
            answer, request_id=request_id, error_code=server_error, error_message=message
        )
    extra: dict[str, int] = {}
    if answer == _Type.ACK_RESPONSE:
        extra["consumer_id"] = command.ack.consumer_id
    elif answer == _Type.LOOKUP_RESPONSE:
        extra["response"] = pb.CommandLookupTopicResponse.Failed
    elif answer == _Type.PARTITIONED_METADATA_RESPONSE:
        extra["response"] = pb.CommandPartitionedTopicMetadataResponse.Failed
    else:
        extra.update(_transaction_id(command))
    return command_frame(
        answer, request_id=request_id, error=server_error, message=message, **extra
    )


def _transaction_id(command: pb.BaseCommand) -> dict[str, int]:
    """The id of the transaction a request is about, which its answer repeats."""
    content = getattr(command, COMMAND_FIELDS[command.type])
    if command.type not in _ANSWERS or "txnid_most_bits" not in content.DESCRIPTOR.fields_by_name:
        return {}
    return {
        "txnid_least_bits": content.txnid_least_bits,
        "txnid_most_bits": content.txnid_most_bits,
    }
