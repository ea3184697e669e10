"""A Vela server and a Spark session for the tests that need them (`make test-pipeline`)."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.delta_jars import delta_settings
from tests.server_process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pulsar
    from pyspark.sql import SparkSession

collect_ignore_glob = [] if find_spec("pyspark") else ["test_*.py"]

COMMAND = (
    f"{sys.executable} -m cli standalone --data-dir {{data_dir}} "
    "--broker-port {broker_port} --web-port {web_port} --config "
)
CONFIG = """\
brokerDeduplicationEnabled=true
managedLedgerMaxEntriesPerLedger=100
managedLedgerMinLedgerRolloverTimeMinutes=0
bookiePort=0
defaultRetentionTimeInMinutes=-1
defaultRetentionSizeInMB=-1
"""

# A session that lives for minutes: little compiling, one partition after a shuffle.
SHORT_LIVED = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def running_server(directory: Path, config: str) -> Iterator[ServerProcess]:
    """A server of its own, ready."""
    path = directory / "server.conf"
    path.write_text(config)
    process = ServerProcess(directory, COMMAND + str(path))
    process.start()
    try:
        process.wait_ready(60)
        yield process
    finally:
        process.kill()
        process.wait_ended()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Ledgers of 100 entries, so that a small topic has several; nothing is trimmed."""
    with running_server(tmp_path_factory.mktemp("server"), CONFIG) as process:
        yield process


@pytest.fixture(scope="session")
def client(server: ServerProcess) -> Iterator[pulsar.Client]:
    import pulsar

    logger = pulsar.ConsoleLogger(pulsar.LoggerLevel.Error)
    client = pulsar.Client(server.service_url, logger=logger)
    yield client
    client.close()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from pipeline.session import session

    spark = session("tests", settings=SHORT_LIVED | delta_settings())
    yield spark
    spark.stop()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"persistent://public/default/{request.node.name.replace('[', '-').strip(']')}"


@pytest.fixture
def options(server: ServerProcess, topic: str) -> dict[str, str]:
    return options_for(server, topic)


def options_for(server: ServerProcess, topic: str) -> dict[str, str]:
    """To read the topic."""
    return {
        "service.url": server.service_url,
        "admin.url": f"http://127.0.0.1:{server.web_port}",
        "topic": topic,
        "pollTimeoutMs": "20000",
        "failOnDataLoss": "true",
    }


@pytest.fixture
def server_arguments(options: dict[str, str]) -> list[str]:
    return ["--service-url", options["service.url"], "--admin-url", options["admin.url"]]
