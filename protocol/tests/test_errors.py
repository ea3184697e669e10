"""Every error code of the protocol can be raised by name, and carries itself to the client."""

from __future__ import annotations

from protocol import errors
from protocol import pulsar_api_pb2 as pb


def test_every_code_has_exactly_one_class():
    classes = errors._CodedError.__subclasses__()
    assert sorted(int(cls.code) for cls in classes) == sorted(pb.ServerError.values())


def test_refusals_carry_code_and_text():
    refused = errors.TopicNotFound("no such topic")
    assert isinstance(refused, errors.BrokerError)
    assert refused.server_error == pb.TopicNotFound
    assert str(refused) == refused.message == "no such topic"
    assert repr(refused) == "TopicNotFound(TopicNotFound, 'no such topic')"
    plain = errors.BrokerError(pb.ConsumerBusy, "taken")
    assert (plain.server_error, plain.message) == (pb.ConsumerBusy, "taken")
