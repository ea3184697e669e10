"""Endpoints of Pulsar that Vela does not have: 501 with the name of the operation.

A client that gets 404 concludes that the tenant, topic or message does not exist, and some tools
then print nothing and succeed. 501 says that the server does not support the operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, final

from broker.admin.router import Route
from broker.refusal import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from broker.admin.context import AdminRequest

_FACTS: Final = Path(__file__).with_name("pulsar_endpoints.txt")


@final
@dataclass(frozen=True, slots=True)
class Endpoint:
    """One operation of Pulsar's admin API."""

    method: str
    path: str
    """Path with names in braces; `{domain}` is persistent or non-persistent."""
    name: str

    @property
    def shape(self) -> tuple[str, str]:
        """Method and path with names blanked: endpoints of one shape are equal."""
        segments = self.path.strip("/").split("/")
        return self.method, "/".join("{}" if each.startswith("{") else each for each in segments)


def pulsar_endpoints() -> list[Endpoint]:
    """All operations."""
    lines = _FACTS.read_text(encoding="utf-8").splitlines()
    return [Endpoint(*line.split()) for line in lines if not line.startswith("#")]


def missing_routes(present: Iterable[Route]) -> list[Route]:
    """Routes that answer 501 for every operation in Pulsar's list that `present` lacks."""
    have = {Endpoint(route.method, route.path, "").shape for route in present}
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

    return Route(endpoint.method, endpoint.path, refuse)
