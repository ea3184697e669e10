"""`/admin/v2/bookies` and the bookies of a namespace: racks, groups, and which ledgers use them.

The rack map is Pulsar's JSON at `/bookies`: group -> bookie id -> {"rack", "hostname"}. A bookie is
in one group. The groups of a namespace are in its local policies. Both are followed by all brokers
of the cluster and decide the bookies of new ledgers. Statuses and texts as on Pulsar 4.0.8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.ground.refusal import Refusal, not_found, precondition_failed
from broker.http.clusters.bundles import cluster_of
from broker.http.router import Route
from broker.tenancy.namespaces.json_nodes import change_json, create_json, read_json
from broker.tenancy.namespaces.names import (
    BOOKIE_GROUPS_FIELD,
    PRIMARY_GROUPS,
    SECONDARY_GROUPS,
    local_policies_path,
)
from ledgers.placement import RACKS_PATH
from protocol.bookkeeper.paths import COOKIES_ROOT
from web.responses import Response, json_response

if TYPE_CHECKING:
    from broker.http.context import AdminContext, AdminRequest
    from broker.tenancy.namespaces.loaded_namespaces import Namespace

Json = dict[str, Any]

_NO_CONTENT: Final = 204
_RACK_FIELDS: Final = ("rack", "hostname")
_GROUP_FIELDS: Final = (PRIMARY_GROUPS, SECONDARY_GROUPS)
_RACK_RULE: Final = (
    "Bookie 'rack' parameter is invalid, When `RackawareEnsemblePlacementPolicy` is enabled, the "
    "rack name is not allowed to contain slash (`/`) except for the beginning and end of the rack "
    "name string. When `RegionawareEnsemblePlacementPolicy` is enabled, the rack name can only "
    "contain one slash (`/`) except for the beginning and end of the rack name string."
)


def _refuse_one_bookie(context: AdminContext) -> None:
    """Raises: Refusal: there is nothing to choose from."""
    if context.ledgers.has_one_bookie:
        raise Refusal(
            501,
            "Racks and groups of bookies have no effect here, because this broker stores "
            "everything in its own bookie",
        )


def _texts(given: object, names: tuple[str, ...]) -> Json:
    """These fields of a body. Numbers are taken for texts, as by Pulsar's JSON reader."""
    if not isinstance(given, dict):
        raise Refusal(400, "The body must be a JSON object")
    kept: Json = {}
    for name in names:
        value = given.get(name)
        if isinstance(value, dict | list):
            raise Refusal(400, f"{name} must be a text")
        if value is not None:
            kept[name] = str(value)
    return kept


# --- the rack map -----------------------------------------------------------------------


async def all_bookies(request: AdminRequest) -> Json:
    """Every bookie that has a cookie."""
    context = request.context
    known = {*await context.store.children(COOKIES_ROOT), *context.ledgers.bookie_ids}
    return {"bookies": [{"bookieId": bookie_id} for bookie_id in sorted(known)]}


async def racks(request: AdminRequest) -> Json:
    """The whole map."""
    return await read_json(request.context.store, RACKS_PATH) or {}


async def rack(request: AdminRequest) -> Json:
    """The rack of one bookie."""
    bookie_id = request.names["bookie"]
    for members in (await racks(request)).values():
        if bookie_id in members:
            info: Json = members[bookie_id]
            return info
    raise _no_rack(bookie_id)


async def set_rack(request: AdminRequest) -> None:
    """Put a bookie into a rack and a group, and out of its former group."""
    context = request.context
    _refuse_one_bookie(context)
    group = request.query.get("group")
    if group is None:
        raise precondition_failed("Bookie 'group' parameters is missing")
    info = _texts(await request.json(), _RACK_FIELDS)
    _check_rack(context, info.get("rack", ""))
    bookie_id = request.names["bookie"]

    def change(found: Json) -> Json:
        others = _without(found, bookie_id)
        return {**others, group: {**others.get(group, {}), bookie_id: info}}

    while await change_json(context.store, RACKS_PATH, change) is None:
        if await create_json(context.store, RACKS_PATH, change({})):
            break


async def delete_rack(request: AdminRequest) -> None:
    """The bookie is in no rack and no group any more."""
    await rack(request)
    bookie_id = request.names["bookie"]
    await change_json(request.context.store, RACKS_PATH, lambda found: _without(found, bookie_id))


def _without(found: Json, bookie_id: str) -> Json:
    left = {
        group: {each: info for each, info in members.items() if each != bookie_id}
        for group, members in found.items()
    }
    return {group: members for group, members in left.items() if members}


def _check_rack(context: AdminContext, name: str) -> None:
    """Raises: Refusal: its depth is not that of the rules."""
    rules = context.ledgers.placement
    if rules.is_rack_aware and name.strip("/").count("/") != int(rules.is_region_aware):
        raise precondition_failed(_RACK_RULE)


def _no_rack(bookie_id: str) -> Refusal:
    return not_found(f"Bookie rack placement configuration not found: {bookie_id}")


# --- the bookies of a namespace ---------------------------------------------------------


async def _namespace(request: AdminRequest) -> Namespace:
    namespace = await request.context.namespaces.find(request.namespace_name)
    if namespace is None:
        raise not_found("Namespace not found")
    return namespace


async def groups(request: AdminRequest) -> Response:
    """The groups whose bookies new ledgers use."""
    namespace = await _namespace(request)
    record = await read_json(request.context.store, local_policies_path(namespace.name)) or {}
    given = record.get(BOOKIE_GROUPS_FIELD)
    return Response(status=_NO_CONTENT) if given is None else json_response(given)


async def set_groups(request: AdminRequest) -> None:
    """Replace them; null removes them."""
    _refuse_one_bookie(request.context)
    given = await request.json()
    await _store_groups(request, None if given is None else _texts(given, _GROUP_FIELDS))


async def delete_groups(request: AdminRequest) -> None:
    """New ledgers use the bookies that the broker is configured for."""
    _refuse_one_bookie(request.context)
    await _store_groups(request, None)


async def _store_groups(request: AdminRequest, given: Json | None) -> None:
    context = request.context
    namespace = await _namespace(request)
    # Makes the record if there is none: a record without bundles would be one bundle for Pulsar.
    await cluster_of(request).boundaries(namespace.name)

    def change(record: Json) -> Json:
        others = {name: value for name, value in record.items() if name != BOOKIE_GROUPS_FIELD}
        return others if given is None else {**others, BOOKIE_GROUPS_FIELD: given}

    await change_json(context.store, local_policies_path(namespace.name), change)
    await context.namespaces.find(namespace.name)


_RACKS: Final = "/admin/v2/bookies/racks-info"
_GROUPS: Final = "/admin/v2/namespaces/{tenant}/{namespace}/persistence/bookieAffinity"
ROUTES: Final = (
    Route("GET", "/admin/v2/bookies/all", all_bookies),
    Route("GET", _RACKS, racks),
    Route("GET", _RACKS + "/{bookie}", rack),
    Route("POST", _RACKS + "/{bookie}", set_rack),
    Route("DELETE", _RACKS + "/{bookie}", delete_rack),
    Route("GET", _GROUPS, groups),
    Route("POST", _GROUPS, set_groups),
    Route("DELETE", _GROUPS, delete_groups),
)
