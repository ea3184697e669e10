"""Policies that move ledgers to other storage. Vela has no such storage, so a value that would
switch it on is refused. Pure. Statuses and texts of wrong values are those of Pulsar 4.0.8."""

from __future__ import annotations

from typing import Any, Final

from broker.ground.refusal import Refusal, precondition_failed
from broker.tenancy.policies.bodies import LONG, object_of, whole

Json = Any
NOT_IMPLEMENTED: Final = 501
_DRIVERS: Final = ("S3", "aws-s3", "google-cloud-storage", "filesystem", "azureblob", "aliyun-oss")


def _refused(policy: str, instead: str) -> Refusal:
    return Refusal(
        NOT_IMPLEMENTED, f"Vela does not offload ledgers to other storage: {instead} {policy}"
    )


def offload_threshold(policy: str, value: Json) -> int:
    """A threshold by bytes or seconds, which a negative one switches off. Raises: Refusal."""
    number = whole(policy, value, LONG)
    if number >= 0:
        raise _refused(policy, "use -1 for")
    return number


def offload_lag(policy: str, value: Json) -> int:
    """How long a ledger stays after it was offloaded. Raises: Refusal, always."""
    whole(policy, value, LONG)
    raise _refused(policy, "leave out")


def offload_policies(policy: str, value: Json) -> Json:
    """An empty text stands for no body. Raises: Refusal, always."""
    if value == "":
        raise precondition_failed("The offloadPolicies must be specified for namespace offload.")
    if object_of(policy, value).get("managedLedgerOffloadDriver") not in _DRIVERS:
        raise precondition_failed(
            f"The driver is not supported, support value: {','.join(_DRIVERS)}"
        )
    raise _refused(policy, "leave out")
