"""Cluster migration, which Vela refuses: no producer and no consumer is sent to another cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from broker.ground.refusal import Refusal, not_found
from broker.http.router import Route
from broker.tenancy.policies.bodies import flag

if TYPE_CHECKING:
    from broker.http.context import AdminRequest

_REFUSED: Final = (
    "Vela does not migrate clients to another cluster. Let producers and consumers connect to the"
    " other cluster themselves"
)


async def get(_request: AdminRequest) -> NoReturn:
    """The answer of Pulsar where nothing was set."""
    raise not_found("Cluster does not exist")


async def update(_request: AdminRequest) -> NoReturn:
    """The migration of all namespaces of a cluster."""
    raise Refusal(501, _REFUSED)


async def of_namespace(request: AdminRequest) -> None:
    """false, which is so without it, is taken."""
    value = await request.json()
    if value is None and not await request.body():
        raise Refusal(400, "The request entity cannot be empty.")
    if value is not None and flag("migrated", value):
        raise Refusal(501, _REFUSED)


ROUTES: Final = (
    Route("GET", "/admin/v2/clusters/{cluster}/migrate", get),
    Route("POST", "/admin/v2/clusters/{cluster}/migrate", update),
    Route("POST", "/admin/v2/namespaces/{tenant}/{namespace}/migration", of_namespace),
)
