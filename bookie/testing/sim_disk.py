"""SimDisk: storage that loses unsynced writes at a power loss.

The model: bytes written and not synced may be there afterwards or not, sector by sector (512
bytes); created, renamed and removed names may be undone from some point on per directory until
`sync_directory`; writes to an index (`sim_index`) survive as a prefix until `sync`. `crash_after`
operations (counted over files, names and index) the power goes: that operation and all later ones
raise PowerLost. `restart` returns what a machine would find afterwards, drawn from a seed.

Thread-safe, because the bookie uses it from its threads.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import TYPE_CHECKING, final

from bookie.errors import DiskFailed, DiskFull

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from bookie.direct_io import Part
    from bookie.disk import DiskFile, Submissions

SECTOR_SIZE = 512


class PowerLost(DiskFailed):
    """The machine is off."""


@final
class Power:
    """Counts operations and cuts the power."""

    def __init__(self, crash_after: int | None = None) -> None:
        self.lock = threading.RLock()
        self.operations = 0
        self.crash_after = crash_after
        self.is_off = False

    def spend(self) -> bool:
        """Before an operation that changes something; True if it is the one that is cut."""
        self.check()
        self.operations += 1
        if self.crash_after is not None and self.operations >= self.crash_after:
            self.is_off = True
            return True
        return False

    def check(self) -> None:
        """Before an operation that only reads."""
        if self.is_off:
            raise PowerLost("the power is off")


@final
class _Inode:
    """The visible content, the durable content, and the writes in between."""

    def __init__(self) -> None:
        self.visible = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []

    def write(self, offset: int, data: bytes) -> None:
        _apply(self.visible, offset, data)
        self.pending.append((offset, data))

    def truncate(self, size: int) -> None:
        _resize(self.visible, size)
        self.pending.append((size, None))

    def sync(self) -> None:
        for offset, data in self.pending:
            if data is None:
                _resize(self.durable, offset)
            else:
                _apply(self.durable, offset, data)
        self.pending.clear()

    def after_crash(self, rng: random.Random) -> bytearray:
        """The durable content plus a drawn part of what was pending."""
        content = bytearray(self.durable)
        keep = rng.choice((0.0, 0.5, 0.9, 1.0))
        for offset, data in self.pending:
            if data is None:
                if rng.random() < keep:
                    _resize(content, offset)
                continue
            position = 0
            while position < len(data):
                step = SECTOR_SIZE - (offset + position) % SECTOR_SIZE
                if rng.random() < keep:
                    _apply(content, offset + position, data[position : position + step])
                position += step
        return content


def _apply(content: bytearray, offset: int, data: bytes) -> None:
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


@final
class SimFile:
    """An open file."""

    def __init__(self, path: str, inode: _Inode, disk: SimDisk) -> None:
        self.path = path
        self._inode = inode
        self._disk = disk

    def write_at(self, offset: int, data: bytes) -> None:
        """Visible at once, durable after sync."""
        with self._disk.power.lock:
            off = self._disk.power.spend()
            growth = offset + len(data) - len(self._inode.visible)
            if growth > 0 and not off:
                missing = self._disk.missing_bytes(growth)
                if missing:  # what fits is written
                    self._inode.write(offset, bytes(data[: max(0, len(data) - missing)]))
                self._disk.take_space(growth, self.path)
            self._inode.write(offset, bytes(data))
            if off:
                raise PowerLost(f"power lost writing {self.path}")

    def write_parts_at(self, offset: int, parts: Sequence[Part]) -> None:
        """One write of all parts."""
        self.write_at(offset, b"".join(parts))

    def write_parts_synced_at(self, offset: int, parts: Sequence[Part]) -> None:
        """A write and a sync: the power may go between them."""
        self.write_parts_at(offset, parts)
        self.sync()

    def direct(self) -> None:
        """There is no page cache."""

    def read_at(self, offset: int, size: int) -> bytes:
        """The visible content."""
        with self._disk.power.lock:
            self._disk.power.check()
            return bytes(self._inode.visible[offset : offset + size])

    def expect_runs(self) -> None:
        """Nothing is read ahead here."""

    def sync(self) -> None:
        """Everything pending becomes durable."""
        with self._disk.power.lock:
            if self._disk.power.spend():
                raise PowerLost(f"power lost syncing {self.path}")
            if self._disk.sync_fails:
                raise DiskFailed(f"fdatasync of {self.path} failed (simulated)")
            self._inode.sync()

    def size(self) -> int:
        """Visible length."""
        with self._disk.power.lock:
            return len(self._inode.visible)

    def truncate(self, size: int) -> None:
        """Pending like a write."""
        with self._disk.power.lock:
            off = self._disk.power.spend()
            self._inode.truncate(size)
            if off:
                raise PowerLost(f"power lost truncating {self.path}")

    def preallocate(self, offset: int, size: int) -> None:
        """Extend with zeros, if there is space."""
        growth = offset + size - self.size()
        if growth > 0:
            with self._disk.power.lock:
                self._disk.power.check()
                self._disk.take_space(growth, self.path)
            self.truncate(offset + size)

    def close(self) -> None:
        """Nothing is synced by closing."""


@final
class SimSubmissions:
    """Writes that are carried out when their result is looked for."""

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._write: tuple[DiskFile, int, Sequence[Part]] | None = None
        self.submitted = 0
        self.tried = 0
        """How many groups were put together to be submitted."""
        self.held = False
        """The writes take until `release`, or until a caller waits."""
        self.alignment = 1
        """The alignment of writes that can be submitted; 0: there are none."""
        self.refuses = False
        """Nothing can be submitted, which is not known before it is tried."""
        self.refuses_late = False
        """It is found out afterwards, when a part has been written."""
        self.closed = False

    def fileno(self) -> int:
        """An eventfd."""
        return self._event

    def takes(self, file: DiskFile, offset: int, alignment: int) -> bool:
        """See Submissions."""
        del file
        return self.alignment > 0 and (offset | alignment) % self.alignment == 0

    def submit(self, file: DiskFile, offset: int, parts: Sequence[Part], size: int) -> bool:
        """See Submissions."""
        assert self._write is None
        self.tried += 1
        assert sum(map(len, parts)) == size
        if self.refuses:
            return False
        self._write = file, offset, parts
        self.submitted += 1
        if not self.held:
            os.eventfd_write(self._event, 1)
        return True

    def release(self) -> None:
        """Let the writes under way end."""
        self.held = False
        os.eventfd_write(self._event, 1)

    def result(self) -> bool | None:
        """See Submissions."""
        return None if self.held else self.wait()

    def wait(self) -> bool:
        """See Submissions."""
        assert self._write is not None
        (file, offset, parts), self._write = self._write, None
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        if self.refuses_late:
            group = b"".join(parts)
            file.write_at(offset, group[: len(group) // 2])
            return False
        file.write_parts_synced_at(offset, parts)
        return True

    def close(self) -> None:
        """See Submissions."""
        assert self._write is None
        if not self.closed:
            self.closed = True
            os.close(self._event)


@final
class SimDisk:
    """See the module docstring."""

    def __init__(self, power: Power | None = None) -> None:
        self.power = power or Power()
        self.free_bytes: int | None = None
        """None: never full."""
        self.said_free_bytes: int | None = None
        """The free bytes that it reports, if space is reserved before it is used. None: the real
        number."""
        self.total_bytes = 1 << 40
        self.sync_fails = False
        self.submissions: Callable[[], Submissions] | None = None
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._pending: dict[str, list[tuple[str, str | None, _Inode | None]]] = {}

    def missing_bytes(self, size: int) -> int:
        """How many of so many bytes there is no room for."""
        return 0 if self.free_bytes is None else max(0, size - self.free_bytes)

    def take_space(self, size: int, path: str) -> None:
        """Fail like a full disk when there is no room."""
        if self.free_bytes is None:
            return
        if size > self.free_bytes:
            raise DiskFull(f"writing {path}: {errno.errorcode[errno.ENOSPC]} (simulated)")
        self.free_bytes -= size

    def make_directories(self, path: str) -> None:
        """Directories are implied by names."""

    def restrict(self, path: str) -> None:
        """Names have no modes here."""

    def list_names(self, path: str) -> Sequence[str]:
        """Names directly below."""
        with self.power.lock:
            prefix = path.rstrip("/") + "/"
            inside = (name[len(prefix) :] for name in self._names if name.startswith(prefix))
            return sorted({name.split("/", 1)[0] for name in inside})

    def exists(self, path: str) -> bool:
        """Visible now."""
        return path in self._names

    def create(self, path: str) -> DiskFile:
        """A new name and file."""
        with self.power.lock:
            if path in self._names:
                raise FileExistsError(path)
            inode = _Inode()
            self._change(path, path, None, inode)
            return SimFile(path, inode, self)

    def open(self, path: str) -> DiskFile:
        """An existing file."""
        with self.power.lock:
            self.power.check()
            if path not in self._names:
                raise FileNotFoundError(path)
            return SimFile(path, self._names[path], self)

    def rename(self, source: str, target: str) -> None:
        """Atomic, durable after the directory's sync."""
        with self.power.lock:
            self._change(target, target, source, self._names[source])

    def remove(self, path: str) -> None:
        """Durable after the directory's sync."""
        with self.power.lock:
            self._change(path, path, None, None)

    def sync_directory(self, path: str) -> None:
        """Names become durable."""
        with self.power.lock:
            if self.power.spend():
                raise PowerLost(f"power lost syncing directory {path}")
            for change in self._pending.pop(path.rstrip("/"), []):
                _apply_name(self._durable_names, change)

    def open_submissions(self) -> Submissions | None:
        """As set."""
        return self.submissions() if self.submissions is not None else None

    def has_device(self, path: str) -> bool:
        """A simulated one."""
        return True

    def free_and_total_bytes(self, path: str) -> tuple[int, int]:
        """As set."""
        free = self.total_bytes if self.free_bytes is None else self.free_bytes
        return free if self.said_free_bytes is None else self.said_free_bytes, self.total_bytes

    def restart(self, rng: random.Random, power: Power | None = None) -> SimDisk:
        """The disk that a machine finds after the power loss."""
        disk = SimDisk(power)
        disk.submissions = self.submissions
        names = dict(self._durable_names)
        for changes in self._pending.values():
            for change in changes[: rng.randint(0, len(changes))]:
                _apply_name(names, change)
        for path, inode in sorted(names.items()):
            survivor = _Inode()
            survivor.visible = inode.after_crash(rng)
            survivor.durable = bytearray(survivor.visible)
            disk._names[path] = disk._durable_names[path] = survivor
        return disk

    def corrupt(self, path: str, offset: int, data: bytes) -> None:
        """Overwrite durable bytes without any operation of the storage."""
        inode = self._names[path]
        _apply(inode.visible, offset, data)
        _apply(inode.durable, offset, data)

    def cut(self, path: str, size: int) -> None:
        """Shorten a file without any operation of the storage."""
        inode = self._names[path]
        _resize(inode.visible, size)
        _resize(inode.durable, size)

    def lose(self, path: str) -> None:
        """Everything below a path is gone, as with a disk that was replaced."""
        for name in [each for each in self._names if each.startswith(f"{path}/")]:
            del self._names[name]
            self._durable_names.pop(name, None)

    def content(self, path: str) -> bytes:
        """The visible content of a file."""
        return bytes(self._names[path].visible)

    def paths(self, suffix: str) -> list[str]:
        """All files with that ending, sorted."""
        return sorted(path for path in self._names if path.endswith(suffix))

    def _change(self, path: str, target: str, source: str | None, inode: _Inode | None) -> None:
        off = self.power.spend()
        change = (target, source, inode)
        directory = path.rsplit("/", 1)[0]
        self._pending.setdefault(directory, []).append(change)
        _apply_name(self._names, change)
        if off:
            raise PowerLost(f"power lost at {path}")


def _apply_name(names: dict[str, _Inode], change: tuple[str, str | None, _Inode | None]) -> None:
    target, source, inode = change
    if source is not None:
        names.pop(source, None)
    if inode is None:
        names.pop(target, None)
    else:
        names[target] = inode
