"""What open producers and consumers are told when what allows them is taken away.

One connection of each caller has a producer or a consumer. Then one thing changes, and whatever the
server tells within a second is the outcome; and what it answers to the same request again.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from compat_tests.authorization_probes import Connection, command_cell, http_cell
from compat_tests.authorized_servers import (
    ADMIN,
    CALLERS,
    CONSUMER,
    PRODUCER,
    READER,
    STRANGER,
    SUPER,
    make_tenant,
)
from protocol import client as wire
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from compat_tests.authorized_servers import ProbeCaller
    from compat_tests.oracle.server_process import ServerProcess

TOLD_SECONDS_MAX: Final = 1.0
_QUIET_SECONDS: Final = 0.05
_T: Final = pb.BaseCommand
_BY_ROLE: Final = {caller.role: caller for caller in CALLERS if caller.original_role is None}

Change = tuple[str, str, Any]
"""Method, path below `/admin/v2/` with `{tenant}`, and body."""

_NAMESPACE: Final = "namespaces/{tenant}/ns"
_TENANT: Final = "tenants/{tenant}"
CHANGES: Final[dict[str, Change]] = {
    "nothing of this": ("POST", f"{_NAMESPACE}/permissions/another", ["produce"]),
    "revoke on the namespace": ("DELETE", f"{_NAMESPACE}/permissions/{CONSUMER}", None),
    "revoke of a producer": ("DELETE", f"{_NAMESPACE}/permissions/{PRODUCER}", None),
    "fewer actions": ("POST", f"{_NAMESPACE}/permissions/{CONSUMER}", ["produce"]),
    "revoke on the topic": (
        "DELETE",
        f"persistent/{{tenant}}/ns/plain/permissions/{READER}",
        None,
    ),
    "the subscription is another's": (
        "POST",
        f"{_NAMESPACE}/permissions/subscription/s-{CONSUMER}",
        ["another"],
    ),
    "prefix": ("POST", f"{_NAMESPACE}/subscriptionAuthMode", "Prefix"),
    "other administrators": (
        "POST",
        _TENANT,
        {"adminRoles": ["another"], "allowedClusters": ["standalone"]},
    ),
}


class _Client:
    """One connection with one producer or consumer."""

    def __init__(self, server: ServerProcess, caller: ProbeCaller, topic: str) -> None:
        self.connection = Connection(server, caller)
        self._topic = topic
        self._role = caller.role
        self.connection.until(_T.CONNECTED)
        assert self.open() == "passed", caller

    def open(self) -> str:
        """Open it, or again, and the answer."""
        connection = self.connection
        if self._role in (PRODUCER, ADMIN):
            connection.send(wire.producer(self._topic, 1, connection.rid()))
        else:
            name = f"s-{self._role}"
            connection.send(wire.subscribe(self._topic, name, 1, connection.rid()))
        answer = connection.until(_T.SUCCESS, _T.PRODUCER_SUCCESS, _T.ERROR)
        cell = command_cell(answer).partition(" - The subscription name")[0]
        return cell.replace("org.apache.pulsar.broker.PulsarServerException: ", "")

    def told(self) -> str:
        """What the server has told by itself."""
        command = self.connection.next_within(_QUIET_SECONDS)
        return "nothing" if command is None else _T.Type.Name(command.type)


def play(server: ServerProcess, tenant: str, change: Change) -> dict[str, tuple[str, str]]:
    """By role: what it is told, and what it is answered afterwards."""
    make_tenant(server, tenant)
    topic = f"persistent://{tenant}/ns/plain"
    roles = (READER, CONSUMER, PRODUCER, ADMIN)
    with ExitStack() as stack:
        clients: dict[str, _Client] = {}
        for role in roles:
            clients[role] = _Client(server, _BY_ROLE[role], topic)
            stack.enter_context(clients[role].connection)
        method, path, body = change
        status, answer = server.http(method, f"/admin/v2/{path.format(tenant=tenant)}", body)
        assert status < 300, (status, answer)
        time.sleep(TOLD_SECONDS_MAX)
        told = {role: client.told() for role, client in clients.items()}
        return {
            role: (told[role], client.open() if told[role] != "nothing" else "")
            for role, client in clients.items()
        }


def play_all(server: ServerProcess, mark: str) -> dict[str, dict[str, tuple[str, str]]]:
    """By change."""
    return {
        name: play(server, f"{mark}-{number}", change)
        for number, (name, change) in enumerate(CHANGES.items())
    }


def change_super_users(server: ServerProcess) -> list[str]:
    """What a stranger is answered before, while and after it is a super user. The roles of the file
    are not added to those that are set while the server runs."""
    path = f"/admin/v2/brokers/configuration/superUserRoles/{SUPER},{STRANGER}"
    told = [_asked(server, "passed")]
    for method, wanted in (("POST", "passed"), ("DELETE", "401")):
        name = path if method == "POST" else path.rpartition("/")[0]
        status, answer = server.http(method, name)
        assert status < 300, (status, answer)
        told.append(_asked(server, wanted))
    return told


def _asked(server: ServerProcess, wanted: str) -> str:
    """The answer to a stranger, once it begins like this or a while has passed."""
    for _ in range(40):
        cell = http_cell(server, _BY_ROLE[STRANGER], "GET", "/admin/v2/brokers/leaderBroker")
        if cell.startswith(wanted):
            break
        time.sleep(TOLD_SECONDS_MAX / 40)
    return cell.partition(" ")[0]
