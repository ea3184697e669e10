"""`python -m compat_tests.prepare`: fetches and builds what the comparisons need, before they run.

Whatever is there already is left as it is, and what cannot be had is named: its tests are skipped
or fail later, as they are told to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from compat_tests.clients.builds import go_command, java_command
from compat_tests.clients.driver import ClientAbsent
from compat_tests.oracle.distribution import OracleAbsent, pulsar_home
from compat_tests.oracle.server_jars import java_of_jars, server_jars
from compat_tests.spark.environment import spark_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NEEDED: Final[Sequence[tuple[str, Callable[[], object]]]] = (
    ("the distribution of Pulsar", pulsar_home),
    ("the jars of the newer Pulsar", server_jars),
    ("their Java", java_of_jars),
    ("the Java program", java_command),
    ("the Go program", go_command),
    ("the environment of the Spark connector", spark_command),
)


def main() -> None:
    """Raises: RuntimeError: a program does not build."""
    for name, prepare in NEEDED:
        try:
            prepare()
        except (OracleAbsent, ClientAbsent) as absent:
            print(f"{name} is not here: {absent}", flush=True)
        else:
            print(f"{name} is ready", flush=True)


if __name__ == "__main__":
    main()
