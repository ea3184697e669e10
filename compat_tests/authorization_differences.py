"""The differences in who is refused what, with reasons. Any other is a defect.

What only one release of Pulsar does is listed with that release and with both answers, and fails
the comparison once it is gone. Vela does as the other release there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from compat_tests.authorization_probes import PASSED

if TYPE_CHECKING:
    from collections.abc import Mapping

HIDDEN: Final = "Vela asks for the right first, and tells nobody else what exists"
WORDS: Final = "in other words"
OFF: Final = "Pulsar tells everyone that this is off"
OPEN: Final = "Pulsar lets everyone read and register schemas by command; Vela asks as over HTTP"
CLOSES: Final = "Pulsar closes the connection, whoever asks"
FAILS: Final = "Pulsar fails for everyone"

_ROUTES: Final = {
    "DELETE /admin/v2/{domain}/{tenant}/{namespace}/{topic}": HIDDEN,
    "DELETE /admin/v2/{domain}/{tenant}/{namespace}/{topic}/truncate": HIDDEN,
    "GET /lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}": HIDDEN,
    "POST /admin/v2/{domain}/{tenant}/{namespace}/{topic}/createMissedPartitions": HIDDEN,
    "PUT /admin/v2/{domain}/{tenant}/{namespace}/{topic}": HIDDEN,
    "PUT /admin/v2/{domain}/{tenant}/{namespace}/{topic}/partitions": HIDDEN,
    "GET /admin/v3/packages/{type}/{tenant}/{namespace}": OFF,
    "POST /admin/v3/packages/{type}/{tenant}/{namespace}/{packageName}/{version}": OFF,
    "PUT /admin/v3/packages/{type}/{tenant}/{namespace}/{packageName}/{version}/metadata": OFF,
    "POST /admin/v3/transactions/abortTransaction/{mostSigBits}/{leastSigBits}": OFF,
    "POST /admin/v3/transactions/transactionCoordinator/replicas": OFF,
    "GET /admin/v3/transactions/transactionBufferInternalStats/{tenant}/{namespace}/{topic}": OFF,
    "GET /admin/v2/broker-stats/destinations": FAILS,
    "GET /admin/v2/namespaces/{tenant}/{namespace}/scanOffloadedLedgers": FAILS,
    "POST /topics/{domain}/{tenant}/{namespace}/{topic}": WORDS,
    "POST /topics/{domain}/{tenant}/{namespace}/{topic}/partitions/{partition}": HIDDEN,
}
_REST_EXCEPTION: Final = "org.apache.pulsar.common.util.RestException: "
"""In front of the text of a command's refusal, on both releases."""
_NOT_FOUND: Final = "HTTP 404 Not Found"
_NO_TENANT: Final = "Tenant does not exist"
"""5.0.1 says so, too; 4.0.8 only that something was not found."""


@dataclass(frozen=True)
class OfRelease:
    """What one release answers: how Vela's cell and its own begin, and why they may differ."""

    vela: str
    oracle: str
    why: str


OF_RELEASES: Final[Mapping[str, Mapping[str, OfRelease]]] = {
    "5.0.1": {
        "GET /admin/v2/clusters": OfRelease(
            PASSED,
            "401 Unauthorized to validateBothSuperuserAndClusterOperation",
            "5.0.1 wants a right for the list of clusters; tools of 4.0 read it as any role",
        ),
        "DELETE /admin/v2/{domain}/{tenant}/{namespace}/{topic}/truncate": OfRelease(
            "401 Unauthorized to validateTopicOperation for operation [LOOKUP]",
            "401 ",
            "5.0.1 does not ask for the right to look up before that of an administrator",
        ),
    }
}
"""By release, then by route or command."""


def why_different(version: str, what: str, vela: str, oracle: str) -> str | None:
    """None: the cells are equal. Empty: they differ, and nobody has said why they may.

    version: the release of the oracle.
    """
    if vela.startswith(PASSED) and oracle.startswith(PASSED):
        return None
    if vela == oracle:
        return None
    listed = OF_RELEASES.get(version, {}).get(what)
    if listed and vela.startswith(listed.vela) and oracle.startswith(listed.oracle):
        return listed.why
    if oracle.replace(_REST_EXCEPTION, "").replace(_NOT_FOUND, _NO_TENANT) == vela:
        return WORDS
    if what in ("GET_SCHEMA", "GET_OR_CREATE_SCHEMA") and oracle == PASSED:
        return OPEN
    if what.startswith("END_TXN") and oracle == "closed":
        return CLOSES
    may_differ = oracle.startswith(PASSED) or _ROUTES.get(what) == WORDS
    return _ROUTES.get(what, "") if may_differ else ""
