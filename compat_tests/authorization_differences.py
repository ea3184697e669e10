"""The differences in who is refused what, with reasons. Any other is a defect."""

from __future__ import annotations

from typing import Final

from compat_tests.authorization_probes import PASSED

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
    "GET /admin/v2/broker-stats/destinations": FAILS,
    "GET /admin/v2/namespaces/{tenant}/{namespace}/scanOffloadedLedgers": FAILS,
    "POST /topics/{domain}/{tenant}/{namespace}/{topic}": WORDS,
    "POST /topics/{domain}/{tenant}/{namespace}/{topic}/partitions/{partition}": HIDDEN,
}
_REST_EXCEPTION: Final = "org.apache.pulsar.common.util.RestException: HTTP 404 Not Found"
_NO_TENANT: Final = "Tenant does not exist"


def why_different(what: str, vela: str, oracle: str) -> str | None:
    """None: the cells are equal. Empty: they differ, and nobody has said why they may."""
    if vela.startswith(PASSED) and oracle.startswith(PASSED):
        return None
    if vela == oracle:
        return None
    if oracle.replace(_REST_EXCEPTION, _NO_TENANT) == vela:
        return WORDS
    if what in ("GET_SCHEMA", "GET_OR_CREATE_SCHEMA") and oracle == PASSED:
        return OPEN
    if what.startswith("END_TXN") and oracle == "closed":
        return CLOSES
    may_differ = oracle.startswith(PASSED) or _ROUTES.get(what) == WORDS
    return _ROUTES.get(what, "") if may_differ else ""
