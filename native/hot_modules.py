"""The modules that may run compiled, and the import of their compiled form.

`make compile` translates the modules named here, and no others, to C with mypyc: the same source,
faster on the path of a message. The result is in `build/compiled`, away from the sources. A wheel
of `make wheel` carries it in `vela_compiled`, beside the packages. It is used only if it was made
from exactly the current sources (`fingerprint`). A changed file is therefore never shadowed by an
old build: the broker then runs from the sources, and logs that.

This module imports nothing of Vela, because it has to act before the first hot module is imported.
`VELA_COMPILED=0` in the environment turns it off.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import sysconfig
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

ROOT: Final = Path(__file__).resolve().parent.parent
WHEEL_DIRECTORY: Final = "vela_compiled"
_IN_WHEEL: Final = ROOT / WHEEL_DIRECTORY
BUILD_DIRECTORY: Final = _IN_WHEEL if _IN_WHEEL.is_dir() else ROOT / "build" / "compiled"
FINGERPRINT_FILE: Final = BUILD_DIRECTORY / "fingerprint"
GROUP: Final = "vela_hot"
SWITCH: Final = "VELA_COMPILED"
USED: Final = "with compiled hot modules"
EXTENSION: Final = "native._extension"
"""Written in C (`native/DESIGN.md`). Whoever imports it does without where it is absent."""
ROOMS: Final = (
    "native",
    "protocol",
    "rocks",
    "runtime",
    "settings",
    "security",
    "web",
    "metadata",
    "bookie",
    "ledgers",
    "broker",
)
_NOT_SOURCES: Final = frozenset({"tests", "testing", "__pycache__"})
"""Folders that a wheel leaves out, as pyproject.toml says."""

_SOURCES: Final = (".py", ".c", ".h")

HOT_MODULES: Final = (
    "protocol.new_messages",
    "protocol.send_fields",
    "protocol.send_runs",
    "protocol.command_frames",
    "protocol.frame_stream",
    "protocol.frames",
    "protocol.dedup_ids",
    "protocol.plain_acks",
    "protocol.plain_requests",
    "protocol.request_frames",
    "protocol.requests",
    "protocol.sticky_keys",
    "protocol.hashing",
    "protocol.templates",
    "protocol.varints",
    "protocol.metadata",
    "protocol.bookkeeper.digests",
    "protocol.bookkeeper.request_runs",
    "protocol.bookkeeper.v2",
    "bookie.add_path",
    "bookie.adds",
    "bookie.direct_io",
    "bookie.entry_runs",
    "bookie.journal",
    "bookie.journal_turns",
    "bookie.journal_writer",
    "bookie.ledger_handle",
    "bookie.ledger_state",
    "bookie.ledger_storage",
    "bookie.net.adds",
    "bookie.net.turns",
    "bookie.ring",
    "bookie.run_scan",
    "bookie.submitted_groups",
    "bookie.write_cache",
    "ledgers.ensemble_acks",
    "ledgers.ensemble_change",
    "ledgers.entry_writer",
    "ledgers.held_adds",
    "ledgers.ledger_writer",
    "ledgers.quorum_writer",
    "ledgers.remote.answers",
    "ledgers.remote.channel",
    "ledgers.remote.pending_adds",
    "ledgers.remote.remote_bookie",
    "protocol.ack_runs",
    "broker.topics.broadcast.admission",
    "broker.topics.broadcast.consumer_handle",
    "broker.topics.broadcast.fanout",
    "broker.topics.broadcast.fanout_groups",
    "broker.topics.broadcast.lane",
    "broker.topics.broadcast.ordinals",
    "broker.topics.broadcast.selection",
    "broker.topics.broadcast.virtual_cursors",
    "broker.ground.entry",
    "broker.doors.pulsar.consumer",
    "broker.doors.pulsar.consuming",
    "broker.doors.pulsar.lookup",
    "broker.doors.pulsar.pending",
    "broker.doors.pulsar.producing",
    "broker.doors.pulsar.publish",
    "broker.doors.pulsar.subscribe",
    "broker.managed_ledger.ack_state",
    "broker.managed_ledger.appender",
    "broker.managed_ledger.entry_cache",
    "broker.managed_ledger.ledger_table",
    "broker.managed_ledger.open_appends",
    "broker.managed_ledger.roll_attempts",
    "broker.ground.histograms",
    "broker.net.back_pressure",
    "broker.net.frame_handlers",
    "broker.net.keep_alive",
    "broker.net.outbox",
    "broker.limits.output_budget",
    "broker.limits.publish_budget",
    "broker.net.request_tasks",
    "broker.net.send_handler",
    "broker.net.session",
    "broker.net.strip",
    "broker.ground.operations",
    "broker.topics.subscription.acknowledgements",
    "broker.topics.subscription.chunks",
    "broker.topics.subscription.client_connection",
    "broker.topics.subscription.consumer",
    "broker.topics.subscription.consumer_handle",
    "broker.topics.subscription.delayed",
    "broker.topics.subscription.dispatch_key_shared",
    "broker.topics.subscription.dispatch_many",
    "broker.topics.subscription.dispatch_shared",
    "broker.topics.subscription.dispatch_single",
    "broker.topics.subscription.entry_source",
    "broker.topics.subscription.in_flight",
    "broker.topics.subscription.key_ranges",
    "broker.topics.subscription.key_replay",
    "broker.topics.subscription.outgoing",
    "broker.topics.subscription.permits",
    "broker.topics.subscription.pump",
    "broker.topics.subscription.redelivery",
    "broker.topics.subscription.request",
    "broker.topics.subscription.round_robin",
    "broker.topics.subscription.unacked",
    "broker.topics.subscription.unusual_fields",
    "broker.topics.topic.admission",
    "broker.topics.topic.non_persistent",
    "broker.topics.topic.persistent",
    "broker.topics.topic.producer",
    "broker.topics.topic.publish_answers",
    "broker.topics.topic.publishing",
    "broker.topics.topic.services",
    "broker.topics.topic.topic",
    "broker.topics.topic.topic_producers",
    "broker.topics.topic.topic_subscriptions",
    "broker.topics.topic.topic_base",
    "broker.ground.turn",
    "runtime.clock",
    "runtime.fair_queue",
    "runtime.loop_wait",
    "runtime.patience",
    "runtime.readers",
    "runtime.send_queue",
    "runtime.transport",
    "runtime.writers",
)


def source_path(module: str) -> Path:
    """Path of the source of a hot module."""
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def extension_path(module: str) -> Path:
    """Path of its compiled form, if there is one."""
    suffix = str(sysconfig.get_config_var("EXT_SUFFIX"))
    return BUILD_DIRECTORY.joinpath(*module.split(".")).with_suffix(suffix)


def fingerprint() -> str:
    """Size and CRC-32 of everything a build depends on, one file a line: all sources (constants are
    copied from modules that are not compiled); and the interpreter, as far as extension modules
    depend on it.

    Each start computes it. A cryptographic hash would load OpenSSL, 5 MB of which a broker without
    TLS has no other use. An edited file of the same size passes once in four billion times.
    """
    lines = [str(sysconfig.get_config_var("EXT_SUFFIX"))]
    for room in ROOMS:
        lines.extend(sorted(_lines_below(str(ROOT / room), room)))
    return "\n".join(lines)


def _lines_below(directory: str, place: str) -> Iterator[str]:
    with os.scandir(directory) as found:
        for entry in found:
            name = entry.name
            if name.endswith(_SOURCES):
                with open(entry.path, "rb", buffering=0) as source:
                    content = source.read()
                yield f"{place}/{name} {len(content)} {zlib.crc32(content):08x}"
            elif name not in _NOT_SOURCES and entry.is_dir():
                yield from _lines_below(entry.path, f"{place}/{name}")


@final
class CompiledFinder:
    """Finds the compiled form of the hot modules (a finder of `sys.meta_path`)."""

    def __init__(self, names: Sequence[str] = (*HOT_MODULES, f"{GROUP}__mypyc", EXTENSION)) -> None:
        self._paths = {name: str(extension_path(name)) for name in names}

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """The compiled module, or None for other modules."""
        del path, target
        place = self._paths.get(name)
        if place is None or (name == EXTENSION and not os.path.isfile(place)):
            return None
        loader = importlib.machinery.ExtensionFileLoader(name, place)
        return importlib.util.spec_from_file_location(name, place, loader=loader)


def use_compiled() -> str:
    """Let hot modules be imported in their compiled form if possible. Returns a description for the
    log. Must be called before any of them is imported."""
    if os.environ.get(SWITCH) == "0":
        return f"from the sources, because {SWITCH}=0"
    if not FINGERPRINT_FILE.is_file():
        return "from the sources; `make compile` or a wheel of `make wheel` is faster"
    if FINGERPRINT_FILE.read_text() != fingerprint():
        return "from the sources, because the compiled modules were made from others"
    early = [name for name in HOT_MODULES if name in sys.modules]
    if early:
        return f"from the sources, because {early[0]} was already imported"
    sys.meta_path.insert(0, CompiledFinder())
    return USED


def use_extension() -> None:
    """Let the extension be imported, and no hot module: in programs that import parts of Vela as
    libraries, at any time. Nothing happens where it was not built from these sources."""
    if os.environ.get(SWITCH) == "0" or not FINGERPRINT_FILE.is_file():
        return
    if FINGERPRINT_FILE.read_text() == fingerprint():
        sys.meta_path.insert(0, CompiledFinder([EXTENSION]))
