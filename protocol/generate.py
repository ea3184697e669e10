"""Generates the Python classes of the `.proto` files of this room.

`python -m protocol.generate` writes `<name>_pb2.py` and `<name>_pb2.pyi` next to every `.proto`
file below `protocol/`; `--check` writes nothing and fails when a committed file differs from what
its `.proto` file gives. The generated files are committed, so that running the broker needs no
compiler. `PulsarApi.proto` becomes `pulsar_api_pb2`.

A tool, the only module here that touches files. It needs grpcio-tools, a development
requirement whose version decides the bytes of the output.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOM = Path(__file__).resolve().parent


def module_name(proto: Path) -> str:
    """`PulsarApi.proto` -> `pulsar_api`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", proto.stem).lower()


def generated(room: Path = ROOM) -> dict[Path, bytes]:
    """Path (relative to the room's parent) and content of every file to be generated.

    Raises: RuntimeError: the compiler refused a definition; its own message is on stderr.
    """
    from grpc_tools import protoc  # type: ignore[import-untyped]

    files: dict[Path, bytes] = {}
    with tempfile.TemporaryDirectory() as directory:
        source, output = Path(directory, "source"), Path(directory, "output")
        output.mkdir()
        names = []
        for proto in sorted(room.rglob("*.proto")):
            folder = proto.parent.relative_to(room.parent)
            name = folder / f"{module_name(proto)}.proto"
            (source / folder).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(proto, source / name)
            names.append(str(name))
        status = protoc.main(
            [
                "protoc",
                f"--proto_path={source}",
                f"--python_out={output}",
                f"--pyi_out={output}",
                *names,
            ]
        )
        if status != 0:
            raise RuntimeError(f"protoc failed with status {status}")
        for file in sorted(output.rglob("*_pb2.py*")):
            files[file.relative_to(output)] = usable(file.read_bytes())
    return files


def usable(content: bytes) -> bytes:
    """A generated file as type checkers accept it.

    Left out are an enum value `None`, which no Python file may declare, and `Schema.KeyValue`,
    which would hide the message of that name (`Schema.Type.KeyValue` is the same number).
    """
    content = re.sub(rb"(?m)^ +None: .*\n|^    KeyValue: Schema\.Type\n", b"", content)
    return content.replace(b"_Mapping]", b"_Mapping[str, object]]")


def stale_files(room: Path = ROOM) -> list[Path]:
    """Generated files that are missing or differ from their definition."""
    stale = []
    for path, content in generated(room).items():
        target = room.parent / path
        if not target.is_file() or target.read_bytes() != content:
            stale.append(path)
    return stale


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m protocol.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare, exit 1 if stale")
    options = parser.parse_args(arguments)
    if options.check:
        stale = stale_files()
        for path in stale:
            print(f"{path} is stale: run python -m protocol.generate", file=sys.stderr)
        return 1 if stale else 0
    for path, content in generated().items():
        (ROOM.parent / path).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
