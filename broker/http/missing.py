"""Endpoints of Pulsar that Vela does not have: 501 with the name of the operation.

A client that gets 404 concludes that the tenant, topic or message does not exist, and some tools
then print nothing and succeed. 501 says that the server does not support the operation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, final

from broker.ground.refusal import Refusal
from broker.http.router import Route
from broker.tenancy.authorization.operations import UNKNOWN, operations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.http.context import AdminRequest
    from broker.tenancy.authorization.operations import Operation

_FACTS: Final = Path(__file__).with_name("pulsar_endpoints.txt")


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    """One operation of Pulsar's admin API."""

    method: str
    path: str
    """Path with names in braces; `{domain}` is persistent or non-persistent."""
    name: str
    asks: str
    """The right that it requires: see `broker.tenancy.authorization.operations.operation`."""

    @property
    def shape(self) -> tuple[str, str]:
        """Method and path with names blanked: endpoints of one shape are equal."""
        segments = self.path.strip("/").split("/")
        return self.method, "/".join("{}" if each.startswith("{") else each for each in segments)


def pulsar_endpoints() -> list[Endpoint]:
    """All operations."""
    return _endpoints(_FACTS.read_text(encoding="utf-8"))


def _endpoints(text: str) -> list[Endpoint]:
    return [Endpoint(*line.split()) for line in text.split("\n") if line and line[0] != "#"]


_OWN: Final = """
GET /metrics metrics none
GET /status.html status none
DELETE /admin/v2/namespaces/{tenant}/{namespace}/encryptionRequired - namespace-policy:ENCRYPTION:WRITE
DELETE /admin/v2/namespaces/{tenant}/{namespace}/isAllowAutoUpdateSchema - namespace-policy:SCHEMA_COMPATIBILITY_STRATEGY:WRITE
DELETE /admin/v2/namespaces/{tenant}/{namespace}/schemaCompatibilityStrategy - namespace-policy:SCHEMA_COMPATIBILITY_STRATEGY:WRITE
DELETE /admin/v2/namespaces/{tenant}/{namespace}/schemaValidationEnforced - namespace-policy:SCHEMA_COMPATIBILITY_STRATEGY:WRITE
GET /admin/v3/{domain}/{tenant}/{namespace}/{topic}/partitions - topic:LOOKUP
PUT /admin/v3/{domain}/{tenant}/{namespace}/{topic}/partitions - namespace:CREATE_TOPIC
POST /admin/v3/{domain}/{tenant}/{namespace}/{topic}/partitions - topic-policy:PARTITION:WRITE
DELETE /admin/v3/{domain}/{tenant}/{namespace}/{topic}/partitions - namespace:DELETE_TOPIC
GET /admin/namespaces/{cluster}/antiAffinity/{group} - none
GET /admin/v2/{domain}/{tenant}/{namespace}/{topic}/ledgerLayouts - topic:PEEK_MESSAGES
"""  # noqa: E501 - one line each, as in the list of Pulsar's
"""The routes that Vela serves beyond that list. Whether `/metrics` requires a caller is decided
before."""


def with_questions(routes: Iterable[Route]) -> list[Route]:
    """The same routes with the rights that they require. A route for which none is listed is for
    super users, so that a line that is missing opens nothing and affects no other route."""
    asked = _asked()
    return [replace(route, asks=asked.get(_shape_of(route), UNKNOWN)) for route in routes]


def unlisted(routes: Iterable[Route]) -> list[str]:
    """The routes, as method and path, for which no right is listed. A test requires that there are
    none."""
    asked = _asked()
    return [f"{route.method} {route.path}" for route in routes if _shape_of(route) not in asked]


def _asked() -> dict[tuple[str, str], tuple[Operation, ...]]:
    """The rights that the lists name, by shape."""
    return {
        shape: operations(endpoint.asks)
        for endpoint in (*pulsar_endpoints(), *_endpoints(_OWN))
        for shape in _shapes(endpoint)
    }


def _shape_of(route: Route) -> tuple[str, str]:
    return _shapes(Endpoint(route.method, route.path, "", ""))[0]


def _shapes(endpoint: Endpoint) -> list[tuple[str, str]]:
    """The shapes of an endpoint: where it has a `{domain}`, those of both."""
    if "{domain}" not in endpoint.path:
        return [endpoint.shape]
    return [
        replace(endpoint, path=endpoint.path.replace("{domain}", domain)).shape
        for domain in ("persistent", "non-persistent")
    ]


def missing_routes(present: Iterable[Route]) -> list[Route]:
    """Routes that answer 501 for every operation in Pulsar's list that `present` lacks."""
    have = {Endpoint(route.method, route.path, "", "").shape for route in present}
    # `{domain}` of a route is either a literal or a name in Pulsar's list.
    have |= {
        (method, path.replace("admin/v2/{}", f"admin/v2/{domain}", 1))
        for method, path in have
        for domain in ("persistent", "non-persistent")
    }
    return [_missing(each) for each in pulsar_endpoints() if each.shape not in have]


def _missing(endpoint: Endpoint) -> Route:
    async def refuse(_request: AdminRequest) -> NoReturn:
        raise Refusal(
            501,
            f"{endpoint.name} ({endpoint.method} {endpoint.path}) is not supported by Vela",
        )

    return Route(endpoint.method, endpoint.path, refuse, asks=operations(endpoint.asks))
