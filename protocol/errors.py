"""Errors of the protocol, and the one way in which a broker refuses a request.

Two families. A `ProtocolError` is about bytes: the peer sent what the protocol does not allow
(`RemoteProtocolError`: close that connection, say why in the log) or we were about to
(`LocalProtocolError`: our bug). A `BrokerError` is an answer: the request was understood and is
refused, with the protocol's own error code. Handlers raise it; one place turns it into a command.

Which code a client treats how (Pulsar's clients, all languages): ServiceNotReady, MetadataError,
PersistenceError and TooManyRequests are tried again after a fresh lookup; NotAllowedError,
TopicNotFound, AuthorizationError, IncompatibleSchema, ProducerFenced and TopicTerminatedError are
final. So a code is never chosen for its name alone.
"""

from __future__ import annotations

from typing import ClassVar

from protocol import pulsar_api_pb2 as pb

ServerError = pb.ServerError


class ProtocolError(Exception):
    """The protocol was violated."""


class LocalProtocolError(ProtocolError):
    """We were about to violate the protocol; nothing was sent. A bug on this side."""


class RemoteProtocolError(ProtocolError):
    """The peer violated the protocol. The text says how, for the log; the connection must close."""


class BrokerError(Exception):
    """A refusal, as the client will see it: `server_error` and a sentence that says what to do."""

    def __init__(self, server_error: pb.ServerError, message: str) -> None:
        super().__init__(message)
        self.server_error = server_error
        self.message = message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({ServerError.Name(self.server_error)}, {self.message!r})"


class _CodedError(BrokerError):
    """A refusal whose class decides the code."""

    code: ClassVar[pb.ServerError]

    def __init__(self, message: str) -> None:
        super().__init__(self.code, message)


class UnknownError(_CodedError):
    """Something failed that should not; the message is all there is to go by."""

    code = pb.UnknownError


class MetadataError(_CodedError):
    """The metadata store cannot be read or written."""

    code = pb.MetadataError


class PersistenceError(_CodedError):
    """The storage cannot be read or written."""

    code = pb.PersistenceError


class AuthenticationError(_CodedError):
    """The credentials are not accepted."""

    code = pb.AuthenticationError


class AuthorizationError(_CodedError):
    """The role may not do this."""

    code = pb.AuthorizationError


class ConsumerBusy(_CodedError):
    """Another consumer holds the subscription."""

    code = pb.ConsumerBusy


class ServiceNotReady(_CodedError):
    """Not now, not here: look up again and retry."""

    code = pb.ServiceNotReady


class ProducerBlockedQuotaExceededError(_CodedError):
    """The backlog quota is passed and its policy holds producers back."""

    code = pb.ProducerBlockedQuotaExceededError


class ProducerBlockedQuotaExceededException(_CodedError):
    """The backlog quota is passed and its policy refuses producers."""

    code = pb.ProducerBlockedQuotaExceededException


class ChecksumError(_CodedError):
    """The message was damaged on its way."""

    code = pb.ChecksumError


class UnsupportedVersion(_CodedError):
    """The client is too old for what it asks."""

    code = pb.UnsupportedVersionError


class TopicNotFound(_CodedError):
    """No such topic, namespace or tenant, and nothing may create it."""

    code = pb.TopicNotFound


class SubscriptionNotFound(_CodedError):
    """No such subscription."""

    code = pb.SubscriptionNotFound


class ConsumerNotFound(_CodedError):
    """No consumer of that id on this connection."""

    code = pb.ConsumerNotFound


class TooManyRequests(_CodedError):
    """More at once than the broker takes."""

    code = pb.TooManyRequests


class TopicTerminated(_CodedError):
    """The topic takes no more messages."""

    code = pb.TopicTerminatedError


class ProducerBusy(_CodedError):
    """The producer name is in use, or the topic has as many producers as it may."""

    code = pb.ProducerBusy


class InvalidTopicName(_CodedError):
    """The text is not the name of a topic."""

    code = pb.InvalidTopicName


class IncompatibleSchema(_CodedError):
    """The schema does not fit those the topic has."""

    code = pb.IncompatibleSchema


class ConsumerAssignError(_CodedError):
    """The consumer cannot get the hash ranges it wants."""

    code = pb.ConsumerAssignError


class TransactionCoordinatorNotFound(_CodedError):
    """This broker does not run that transaction coordinator."""

    code = pb.TransactionCoordinatorNotFound


class InvalidTxnStatus(_CodedError):
    """The transaction is in a state that does not allow this."""

    code = pb.InvalidTxnStatus


class NotAllowed(_CodedError):
    """A policy or the kind of the topic rules it out; retrying is useless."""

    code = pb.NotAllowedError


class TransactionConflict(_CodedError):
    """Another transaction has acked the message."""

    code = pb.TransactionConflict


class TransactionNotFound(_CodedError):
    """No such transaction."""

    code = pb.TransactionNotFound


class ProducerFenced(_CodedError):
    """Another producer took exclusive access; this one must be closed."""

    code = pb.ProducerFenced
