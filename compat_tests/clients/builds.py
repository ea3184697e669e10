"""Build the client programs, once for their sources, and give the command that runs them."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

from compat_tests.clients.driver import ClientAbsent
from compat_tests.oracle.distribution import OracleAbsent, require_java
from compat_tests.oracle.server_jars import (
    JARS_VERSION,
    LOG_CONFIGURATION,
    java_of_jars,
    server_jars,
)

CLIENTS = Path(__file__).resolve().parent
BUILD_TIMEOUT_SECONDS = 900


def _pinned(framework: str, artifact: str) -> str:
    text = (CLIENTS / "frameworks" / framework / "pom.xml").read_text()
    return text.split(f"<artifactId>{artifact}</artifactId>")[1].split("version>")[1][:-2]


JAVA_VERSIONS = CLIENTS / "java" / "versions"
"""What each other version of the Java client is made of."""
JAVA_CLIENTS = {f"java-{version}": version for version in ("2.8.4", "4.2.4", JARS_VERSION)}
"""Those versions, the oldest and the newest, by the names that the matrix shows."""

FRAMEWORKS = {
    "spring": "Spring Boot " + _pinned("spring", "spring-boot-dependencies"),
    "smallrye": "SmallRye " + _pinned("smallrye", "smallrye-reactive-messaging-pulsar"),
    "reactive": "reactive client " + _pinned("reactive", "pulsar-client-reactive-adapter"),
}
"""Titles of the small programs."""

JAVA_SCENARIOS = CLIENTS / "java" / "scenarios.txt"
GO_SCENARIOS = CLIENTS / "go" / "scenarios.txt"


def scenario_names(listing: Path, mark: str = "") -> list[str]:
    """The scenarios of a program: a line each, with or without a mark before it. `own-server NAME`
    ends servers; `vela-only NAME` shows a feature that real Pulsar does not have; `guarded NAME` is
    for servers that want credentials, `each-minute NAME` for those that expire things so often."""
    lines = [line.split() for line in listing.read_text().splitlines() if line and line[0] != "#"]
    return [words[-1] for words in lines if words[:-1] == ([mark] if mark else [])]


def java_command() -> list[str]:
    """Build the Java program with Maven and give its command."""
    maven, place = _maven(), CLIENTS / "java"
    goals = ["compile", "dependency:copy-dependencies", "-DoutputDirectory=target/lib"]
    build(
        [maven, "-q", "-B", *goals],
        place,
        sources=[place / "pom.xml", *sorted((place / "src").rglob("*.java"))],
        stamp=place / "target" / "built-from",
    )
    return _java_program("java", place / "target" / "lib")


def java_command_with(version: str) -> list[str]:
    """The same program with another version of the stock client in the place of its own.

    The classes stay as they were compiled, so a scenario that calls something which that client
    lacks fails there. The client of 5.0.1 is that of the server's jars, on their Java.
    """
    java_command()
    if version == JARS_VERSION:
        try:
            return _java_program(str(java_of_jars()), server_jars())
        except OracleAbsent as absent:
            raise ClientAbsent(str(absent)) from None
    listing = JAVA_VERSIONS / f"{version}.xml"
    directory = CLIENTS / "java" / "target" / f"client-{version}"
    build(
        [
            *(_maven(), "-q", "-B", "-f", str(listing)),
            *("dependency:copy", f"-DoutputDirectory={directory}"),
        ],
        CLIENTS / "java",
        sources=[listing],
        stamp=directory / "built-from",
    )
    return _java_program("java", directory)


def _maven() -> str:
    try:
        require_java()
    except OracleAbsent as absent:
        raise ClientAbsent(str(absent)) from None
    maven = shutil.which("mvn")
    if maven is None:
        raise ClientAbsent("no `mvn` on the path: it builds the Java client program")
    return maven


def _java_program(java: str, client: Path) -> list[str]:
    """`client`: a directory with the jars of a stock client and of what the program needs."""
    return [
        java,
        "-Xmx512m",
        "-XX:TieredStopAtLevel=1",
        "--add-opens=java.base/sun.net=ALL-UNNAMED",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
        "-cp",
        f"{CLIENTS / 'java' / 'target' / 'classes'}:{client}/*",
        "vela.compat.Main",
    ]


def framework_command(name: str) -> list[str]:
    """Build the program of one of `FRAMEWORKS` with Maven and give its command."""
    place = CLIENTS / "frameworks" / name
    build(
        [
            *(_maven(), "-q", "-B", "compile"),
            *("dependency:copy-dependencies", "-DoutputDirectory=target/lib"),
        ],
        place,
        sources=[place / "pom.xml", *sorted((place / "src").rglob("*.*"))],
        stamp=place / "target" / "built-from",
    )
    return [
        *("java", "-Xmx512m", "-XX:TieredStopAtLevel=1"),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        *("-cp", f"{place / 'target' / 'classes'}:{place / 'target' / 'lib'}/*"),
        "vela.compat.Main",
    ]


def rust_command() -> list[str]:
    """Build the Rust program with cargo and give its command."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise ClientAbsent("no `cargo` on the path: it builds the Rust client program")
    place = CLIENTS / "rust"
    protoc = place / "target" / "protoc"
    protoc.parent.mkdir(exist_ok=True)
    # The crate is built with protoc. That of grpcio-tools is among the packages of the tests.
    protoc.write_text(f'#!/bin/sh\nexec {sys.executable} -m grpc_tools.protoc "$@"\n')
    protoc.chmod(0o755)
    _write_rust_lock(cargo, place)
    build(
        ["env", f"PROTOC={protoc}", cargo, "build", "--quiet", "--locked"],
        place,
        sources=[place / "Cargo.toml", place / "Cargo.lock", *sorted(place.glob("src/*.rs"))],
        stamp=place / "target" / "built-from",
    )
    return [str(place / "target" / "debug" / "compat-rust")]


def _write_rust_lock(cargo: str, place: Path) -> None:
    """`Cargo.lock` of the packages in `versions.lock`, which does not have the origin that cargo
    wants: a lock that it makes itself has."""
    versions, lock = (place / "versions.lock").read_text(), place / "Cargo.lock"
    if lock.is_file() and _without_origins(lock.read_text()) == versions:
        return
    lock.unlink(missing_ok=True)
    _run([cargo, "generate-lockfile", "--quiet"], place)
    origin = re.search(r"^source = .*\n", lock.read_text(), re.MULTILINE)
    assert origin is not None
    lock.write_text(re.sub(r"^(?=checksum = )", origin[0], versions, flags=re.MULTILINE))


def _without_origins(lock: str) -> str:
    return re.sub(r"^source = .*\n", "", lock, flags=re.MULTILINE)


def go_command() -> list[str]:
    """Build the Go program and give its command."""
    go = shutil.which("go")
    if go is None:
        raise ClientAbsent("no `go` on the path: it builds the Go client program")
    place = CLIENTS / "go"
    binary = place / "bin" / "compat"
    build(
        [go, "build", "-o", str(binary), "."],
        place,
        sources=[place / "go.mod", place / "go.sum", *sorted(place.glob("*.go"))],
        stamp=place / "bin" / "built-from",
    )
    return [str(binary)]


def build(command: list[str], place: Path, sources: list[Path], stamp: Path) -> None:
    """Run a command unless it ran for the same sources. Raises: RuntimeError: it failed."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    wanted = digest.hexdigest()
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    _run(command, place)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(wanted)


def _run(command: list[str], place: Path) -> None:
    ran = subprocess.run(
        command,
        cwd=place,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_SECONDS,
        check=False,
    )
    if ran.returncode != 0:
        told = (ran.stdout + ran.stderr)[-4000:]
        raise RuntimeError(f"`{' '.join(command)}` failed:\n{told}")
