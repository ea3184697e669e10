"""The releases of real Pulsar that Vela is compared with: how each is had, and how it is started.

4.0.8 is one archive with its start scripts, which use the `java` on the path. 5.0.1 is published
as jars; it brings a Java of its own, because it needs a newer one. Both stay in `.oracle/`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from compat_tests.oracle.configuration import properties, with_keys, without_keys
from compat_tests.oracle.distribution import PULSAR_VERSION, pulsar_home
from compat_tests.oracle.server_jars import (
    JARS_VERSION,
    LOG_CONFIGURATION,
    java_of_jars,
    server_jars,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SMALL_MEMORY: Final = "-Xms256m -Xmx1g -XX:MaxDirectMemorySize=1g"
# The quick compiler alone: a start takes a third less CPU time, and no scenario lasts long.
SMALL_COLLECTOR: Final = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1 -XX:+PerfDisableSharedMem"
CLIENT_MEMORY: Final = "-Xms256m -Xmx1g -XX:MaxDirectMemorySize=1g"
CLIENT_COLLECTOR: Final = "-XX:+UseParallelGC"


class Release(ABC):
    """One release; nothing is fetched before it is asked for something. All of its methods raise
    OracleAbsent where it cannot be had."""

    version: str

    @property
    def name(self) -> str:
        """Of a server of this release, where there are several."""
        return f"pulsar-{self.version}"

    @abstractmethod
    def fetch(self) -> None:
        """Have all of it."""

    @abstractmethod
    def configuration(self, keys: Mapping[str, str]) -> str:
        """The text of a `standalone.conf` of this release, with these keys."""

    @abstractmethod
    def standalone_command(self, arguments: Sequence[str], small: bool) -> list[str]:
        """Starts the server in one process; `small` with little memory, quickly."""

    @abstractmethod
    def standalone_environment(
        self, configuration: Path, logs: Path, small: bool
    ) -> dict[str, str]:
        """Variables of that command; `logs`: a directory of its own."""

    @abstractmethod
    def perf_command(self, directory: Path) -> list[str]:
        """`pulsar-perf`, before its arguments; `directory` is of its own."""

    @abstractmethod
    def perf_environment(self, directory: Path) -> dict[str, str]:
        """Variables of that command."""


class Distribution(Release):
    """4.0.8, the measure so far: the archive and its scripts."""

    version = PULSAR_VERSION

    def fetch(self) -> None:
        pulsar_home()

    def configuration(self, keys: Mapping[str, str]) -> str:
        return with_keys(pulsar_home() / "conf" / "standalone.conf", keys)

    def standalone_command(self, arguments: Sequence[str], small: bool) -> list[str]:
        return [str(pulsar_home() / "bin" / "pulsar"), "standalone", "-nss", "-nfw", *arguments]

    def standalone_environment(
        self, configuration: Path, logs: Path, small: bool
    ) -> dict[str, str]:
        own = {
            "PULSAR_STANDALONE_CONF": str(configuration),
            "PULSAR_LOG_DIR": str(logs),
            "PULSAR_LOG_LEVEL": "warn",
        }
        if small:
            own |= {"PULSAR_MEM": SMALL_MEMORY, "PULSAR_GC": SMALL_COLLECTOR}
        if "JAVA_HOME" in os.environ:
            own["JAVA_HOME"] = os.environ["JAVA_HOME"]
        return own

    def perf_command(self, directory: Path) -> list[str]:
        return [str(pulsar_home() / "bin" / "pulsar-perf")]

    def perf_environment(self, directory: Path) -> dict[str, str]:
        return {
            "PULSAR_MEM": CLIENT_MEMORY,
            "PULSAR_GC": CLIENT_COLLECTOR,
            "PULSAR_LOG_IMMEDIATE_FLUSH": "true",
            "PULSAR_LOG_DIR": str(directory),
        }


NEW_DEFAULTS: Final = frozenset(
    {
        "authenticateOriginalAuthData",
        "bookkeeperClientSeparatedIoThreadsEnabled",
        "defaultNumberOfNamespaceBundles",
        "keySharedLookAheadMsgInReplayThresholdPerConsumer",
        "keySharedLookAheadMsgInReplayThresholdPerSubscription",
        "managedCursorInfoCompressionType",
        "managedLedgerInfoCompressionType",
        "managedLedgerMaxBatchDeletedIndexToPersist",
        "managedLedgerMaxUnackedRangesToPersist",
        "managedLedgerMaxUnackedRangesToPersistInMetadataStore",
        "managedLedgerPersistIndividualAckAsLongArray",
        "schemaRegistryCompatibilityCheckers",
        "webServiceTlsProvider",
    }
)
"""Keys which the file of 4.0.8 sets to a value that was the default then, and is not any more."""

_OPENED: Final = (
    *(
        f"java.base/{each}"
        for each in (
            *("sun.net", "java.lang", "java.nio", "jdk.internal.misc", "java.util"),
            *("java.util.zip", "sun.nio.ch", "java.io", "java.net", "jdk.internal.platform"),
            *("sun.security.jca", "java.util.concurrent"),
        )
    ),
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
_JAVA_OPTIONS: Final = (
    *(option for each in _OPENED for option in ("--add-opens", f"{each}=ALL-UNNAMED")),
    "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "-Djava.net.preferIPv4Stack=true",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dlog4j2.disable.jmx=true",
    f"-Dlog4j2.configurationFile={LOG_CONFIGURATION}",
)
# What the scripts of 4.0.8 give a server that is not small.
_FULL: Final = (
    *("-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=4g"),
    *("-XX:+UseZGC", "-XX:+PerfDisableSharedMem", "-XX:+AlwaysPreTouch"),
    "-Dpulsar.allocator.exit_on_oom=true",
    "-Dio.netty.recycler.maxCapacityPerThread=4096",
)


class Jars(Release):
    """5.0.1: the classes are started as the scripts of a distribution would start them."""

    version = JARS_VERSION

    def fetch(self) -> None:
        server_jars()
        java_of_jars()

    def configuration(self, keys: Mapping[str, str]) -> str:
        """The jars hold no `standalone.conf`, and the one of 4.0.8 is accepted."""
        stock = pulsar_home() / "conf" / "standalone.conf"
        return without_keys(stock, NEW_DEFAULTS - keys.keys(), keys)

    def standalone_command(self, arguments: Sequence[str], small: bool) -> list[str]:
        options = [*SMALL_MEMORY.split(), *SMALL_COLLECTOR.split()] if small else _FULL
        return [
            *self._java(options),
            "org.apache.pulsar.PulsarStandaloneStarter",
            "--no-functions-worker",
            "--no-stream-storage",
            *arguments,
        ]

    def standalone_environment(
        self, configuration: Path, logs: Path, small: bool
    ) -> dict[str, str]:
        return {}

    def perf_command(self, directory: Path) -> list[str]:
        directory.mkdir(parents=True, exist_ok=True)
        configuration = directory / "client.conf"
        configuration.write_text(properties({}))
        return [
            *self._java(
                [*CLIENT_MEMORY.split(), *CLIENT_COLLECTOR.split(), "-Dvela.log.level=info"]
            ),
            "org.apache.pulsar.testclient.PulsarPerfTestTool",
            str(configuration),
        ]

    def perf_environment(self, directory: Path) -> dict[str, str]:
        return {}

    def _java(self, options: Sequence[str]) -> list[str]:
        return [str(java_of_jars()), *options, *_JAVA_OPTIONS, "-cp", f"{server_jars()}/*"]


RELEASES: Final[dict[str, Release]] = {each.version: each for each in (Distribution(), Jars())}
"""By version; the first is the one that Vela follows where the two differ, unless it is said."""
FIRST: Final = RELEASES[PULSAR_VERSION]
