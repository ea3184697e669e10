"""pulsar-admin for tenants, namespaces and topic policies: every subcommand on both servers."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pytest

from compat_tests.oracle.distribution import PULSAR_VERSION, TREE
from compat_tests.oracle.pulsar_shell import play
from compat_tests.oracle.releases import FIRST
from compat_tests.policy_commands import (
    GROUPS,
    NAMESPACE,
    PAUSE,
    TENANT,
    lines,
    subcommand_of,
)
from compat_tests.servers import start_servers
from protocol.topic_name import is_system_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from compat_tests.oracle.releases import Release
    from compat_tests.oracle.server_process import ServerProcess
    from compat_tests.servers import Servers, Wanted

DOCUMENT: Final = TREE / "docs" / "compatibility-policies.md"
REFUSED: Final = {
    "namespaces set-offload-threshold": "ledgers stay in bookies",
    "namespaces get-offload-threshold": "none could be set",
    "namespaces set-offload-deletion-lag": "ledgers stay in bookies",
    "namespaces get-offload-deletion-lag": "none could be set",
    "namespaces set-offload-policies": "ledgers stay in bookies",
    "namespaces get-offload-policies": "none could be set",
    "topicPolicies set-offload-policies": "ledgers stay in bookies",
    "topicPolicies get-offload-policies": "none could be set",
    "namespaces update-migration-state": "clusters do not migrate",
    "namespaces set-bookie-affinity-group": "standalone has one bookie",
    "namespaces get-bookie-affinity-group": "none could be set",
    "namespaces delete-bookie-affinity-group": "standalone has one bookie",
}
"""Subcommands that are refused, or show that others were, and why."""
_NO_FORMER_PATH: Final = (
    "the tool of 4.0.8 asks at a path of the first admin API, which 5.0.1 does not have any more; "
    "tools of both releases are answered"
)
OF_RELEASES: Final = {
    "5.0.1": {
        f"namespaces get-anti-affinity-namespaces -p {TENANT} -c standalone -g apart": (
            _NO_FORMER_PATH
        ),
        "namespaces get-anti-affinity-namespaces -c standalone -g apart": _NO_FORMER_PATH,
        f"namespaces clear-backlog -force -s sub {NAMESPACE}": (
            "5.0.1 fails with an exception if one topic of the namespace lacks the subscription"
        ),
    }
}
"""By release: lines that it alone answers differently. Vela answers as the other release."""
_NOISE: Final = re.compile(r"^\s*$|^\S+ \[\S+\] WARN |^\tat |^Reason: ")
_FUTURE: Final = {"done", "cancelled", "completedExceptionally", "numberOfDependents"}
"""`get-dispatcher-pause-on-ack-state-persistent` of a topic shows the state of the tool's request,
and not its answer."""
_SET: Final = re.compile(r"\[([^]]*)\]")
_SUBCOMMAND: Final = re.compile(r"^  ([a-z][a-z-]+)")


def meaning(printed: str) -> Any:
    """What a subcommand printed, without what is the tool's own. Maps and sets have no order."""
    kept = [line for line in printed.split("\n") if not _NOISE.match(line)]
    try:
        value = json.loads("\n".join(kept))
    except ValueError:
        return sorted(
            _SET.sub(lambda found: str(sorted(found[1].split(", "))), each) for each in kept
        )
    if isinstance(value, list):
        return sorted(value, key=str)
    if not isinstance(value, dict):
        return value
    if set(value) == _FUTURE:
        return {}
    hashes = value.get("topicHashPositions")
    if hashes is not None:  # Pulsar counts its own topics
        value["topicHashPositions"] = {
            name: place for name, place in hashes.items() if not is_system_topic(name)
        }
    return value


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, beside: Wanted) -> Iterator[Servers]:
    """Servers of their own: all their tenants are listed."""
    keys = {"backlogQuotaDefaultLimitGB": "10"}  # as in Pulsar's standalone.conf
    servers = start_servers(tmp_path_factory.mktemp("policies"), beside, keys)
    yield servers
    for server in servers.values():
        server.kill()


def test_every_subcommand_for_policies_does_the_same(
    pair: Servers, release: Release, tmp_path: Path
) -> None:
    played = lines()

    def printed_by(server: ServerProcess) -> list[str]:
        return play(server, played, tmp_path / server.name)

    with ThreadPoolExecutor(2) as pool:
        vela, oracle = pool.map(printed_by, (pair["vela"], pair[release.name]))
    rows: dict[str, list[str]] = {}
    unexpected: list[str] = []
    gone = set(listed := OF_RELEASES.get(release.version, {}))
    for line, own, other in zip(played, vela, oracle, strict=True):
        name = subcommand_of(line)
        if line == PAUSE or name.split()[0] not in GROUPS:
            continue
        cells = rows.setdefault(name, [])
        if meaning(own) == meaning(other):
            continue
        if line in listed:
            gone.discard(line)
            continue
        if name in REFUSED:
            cells[:] = [f"refused: {REFUSED[name]}"]
            continue
        told = f"`{line}`: {' and Pulsar: '.join(different(meaning(own), meaning(other)))}"
        cells.append(told)
        unexpected.append(told)
    if release is FIRST:
        write(rows)
    assert not unexpected, "\n".join(unexpected)
    assert not gone, f"{gone} no longer differ on {release.version}: take them off the list"


def different(own: Any, other: Any) -> tuple[str, str]:
    """What differs, each in one line."""
    if isinstance(own, dict) and isinstance(other, dict):
        names = sorted(name for name in own | other if own.get(name) != other.get(name))
        own, other = ({name: each.get(name) for name in names} for each in (own, other))
    return json.dumps(own)[:300], json.dumps(other)[:300]


def test_no_subcommand_is_left_out(pair: Servers, release: Release, tmp_path: Path) -> None:
    helps = play(pair[release.name], [f"{group} --help" for group in GROUPS], tmp_path)
    there = {
        f"{group} {found.group(1)}"
        for group, text in zip(GROUPS, helps, strict=True)
        for line in text.split("Commands:")[1].split("\n")
        if (found := _SUBCOMMAND.match(line))
    }
    assert there <= {subcommand_of(line) for line in lines()}


def write(rows: dict[str, list[str]]) -> None:
    equal = sum(not cells for cells in rows.values())
    refused = sum(cells[:1] == [f"refused: {REFUSED.get(name)}"] for name, cells in rows.items())
    text = [
        "# pulsar-admin for policies compared with Apache Pulsar",
        "",
        "Generated by `make compat`; do not edit. Every subcommand of `pulsar-admin tenants`,",
        f"`namespaces` and `topicPolicies` of Apache Pulsar {PULSAR_VERSION} is played on both",
        "servers: policies are read, set, read again, removed, and read once more, those of topics",
        "also with `--applied` and `--global`, with wrong values among them. What the tool prints",
        "is compared.",
        "",
        f"{equal} of {len(rows)} subcommands do the same; {refused} are refused, or show what was.",
        "",
        "| subcommand | outcome |",
        "|---|---|",
    ]
    text += [
        f"| {name} | {'; '.join(each.replace('|', chr(92) + '|') for each in cells) or 'equal'} |"
        for name, cells in sorted(rows.items())
    ]
    DOCUMENT.write_text("\n".join(text) + "\n", encoding="utf-8")
