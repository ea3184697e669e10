"""`/admin/v2/brokers`: health, the list of brokers, and the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.configuration.config_keys import SECRET
from broker.ground.refusal import not_found, precondition_failed
from broker.http.clusters.dynamic_configuration import dynamic_keys
from broker.http.router import Route
from broker.tenancy.namespaces.json_nodes import change_json, create_json
from broker.tenancy.namespaces.names import DYNAMIC_CONFIGURATION_PATH
from settings.reading import as_properties

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.http.context import AdminRequest

_PULSAR_1: Final = "V1"
_PULSAR_2: Final = "V2"


async def health(request: AdminRequest) -> str:
    """Only reached once the broker is ready. Messages can be stored: in a cluster one is, in a
    heartbeat namespace of this broker, and is read again."""
    context = request.context
    await context.check_healthy()
    if context.cluster is not None:
        await context.cluster.check_health(as_pulsar_1=_is_pulsar_1(request))
    return "ok"


def _is_pulsar_1(request: AdminRequest) -> bool:
    """The form of the namespace that a check is asked for. Raises: Refusal: there is no such
    form."""
    given = request.query.get("topicVersion", _PULSAR_1)
    if given not in (_PULSAR_1, _PULSAR_2):
        raise not_found("HTTP 404 Not Found")
    return given == _PULSAR_1


async def ready(request: AdminRequest) -> str:
    """Only reached once the broker is ready. The bookie must still be working."""
    await request.context.check_ready()
    return "ok"


async def brokers(request: AdminRequest) -> list[str]:
    """The brokers of this cluster, whatever cluster is requested."""
    cluster = request.context.cluster
    return [request.context.broker_id] if cluster is None else sorted(cluster.brokers)


async def leader(request: AdminRequest) -> dict[str, str]:
    """The broker that assigns topics."""
    context = request.context
    if context.cluster is None:
        return {
            "serviceUrl": context.address.preferred_web_url,
            "brokerId": context.broker_id,
        }
    leader = context.cluster.leader
    if leader is None:
        raise not_found("Couldn't find leader broker")
    broker_id, url = leader
    return {"serviceUrl": url, "brokerId": broker_id}


async def version(request: AdminRequest) -> str:
    """The version of Pulsar whose behaviour Vela has."""
    return request.context.version


async def runtime_configuration(request: AdminRequest) -> dict[str, str]:
    """Every key with its value in force, except secrets."""
    properties = as_properties(request.context.config)
    return {key: value for key, value in properties.items() if key not in SECRET}


async def dynamic_names(request: AdminRequest) -> list[str]:
    """Keys that may be set at run time."""
    return dynamic_keys(request.context.config)


async def dynamic_values(request: AdminRequest) -> dict[str, str]:
    """The values set at run time."""
    return dict(request.context.dynamic)


async def set_dynamic(request: AdminRequest) -> dict[str, Any] | str:
    """Store a value, even an invalid one. A valid one takes effect at once."""
    key, value = request.names["key"], request.names["value"]
    if key not in dynamic_keys(request.context.config):
        raise precondition_failed("Can't update non-dynamic configuration")
    await _store(request, lambda values: {**values, key: value})
    return ""


async def delete_dynamic(request: AdminRequest) -> str:
    """Remove a value."""
    key = request.names["key"]
    if key not in dynamic_keys(request.context.config):
        raise precondition_failed("Can't delete non-dynamic configuration")
    await _store(
        request, lambda values: {name: each for name, each in values.items() if name != key}
    )
    return ""


async def internal_configuration(request: AdminRequest) -> dict[str, str]:
    """The place of the metadata; empty: this process."""
    url = request.context.metadata_url
    return {
        "metadataStoreUrl": url,
        "configurationMetadataStoreUrl": url,
        "ledgersRootPath": "/ledgers",
    }


async def _store(request: AdminRequest, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Other brokers may change other keys at the same time."""
    context = request.context
    values = await change_json(context.store, DYNAMIC_CONFIGURATION_PATH, change)
    while values is None:
        values = change({})
        if not await create_json(context.store, DYNAMIC_CONFIGURATION_PATH, values):
            values = await change_json(context.store, DYNAMIC_CONFIGURATION_PATH, change)
    await context.set_dynamic(values)


_BROKERS: Final = "/admin/v2/brokers"
ROUTES: Final = (
    Route("GET", f"{_BROKERS}/health", health),
    Route("GET", f"{_BROKERS}/ready", ready),
    Route("GET", "/status.html", ready),
    Route("GET", _BROKERS, brokers),
    Route("GET", f"{_BROKERS}/{{cluster}}", brokers),
    Route("GET", f"{_BROKERS}/leaderBroker", leader),
    Route("GET", f"{_BROKERS}/version", version),
    Route("GET", f"{_BROKERS}/configuration", dynamic_names),
    Route("GET", f"{_BROKERS}/configuration/values", dynamic_values),
    Route("GET", f"{_BROKERS}/configuration/runtime", runtime_configuration),
    Route("GET", f"{_BROKERS}/internal-configuration", internal_configuration),
    Route("POST", f"{_BROKERS}/configuration/{{key}}/{{value}}", set_dynamic),
    Route("DELETE", f"{_BROKERS}/configuration/{{key}}", delete_dynamic),
)
