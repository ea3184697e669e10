"""What the command refuses before it needs a ZooKeeper, in one line."""

import pytest
from click.testing import CliRunner

from cli.commands import main


@pytest.fixture(autouse=True)
def logging_of_other_tests(monkeypatch):
    """What a command does to it would outlast this test."""
    monkeypatch.setattr("cli.metadata_copy.command.log_to_stderr", lambda _level: None)


def refusal(*arguments):
    done = CliRunner().invoke(
        main, ["copy-metadata", "--web-service-url", "http://h:8080", *map(str, arguments)]
    )
    assert done.exit_code == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("vela: ")
    return line


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("rocksdb:/tmp/x", "cannot share a store"),
        ("memory:", "cannot share a store"),
        ("unix:/tmp/x", "is no ZooKeeper"),
        ("etcd:http://h:1", "no etcd store"),
        ("zk:", "should name ZooKeeper as"),
        ("zk:h:port", "should name ZooKeeper as"),
        ("zk:h:2181//a", "must start with /"),
    ],
)
def test_a_url_that_names_no_zookeeper(tmp_path, url, text):
    assert text in refusal("--data-dir", tmp_path, "--metadata-store", url)


def test_a_directory_that_is_not_one_of_a_standalone_broker(tmp_path):
    missing = tmp_path / "missing"
    for directory in (missing, tmp_path):
        line = refusal("--data-dir", directory, "--metadata-store", "zk:h:2181")
        assert f"{directory}/metadata is not there" in line
    assert list(tmp_path.iterdir()) == []


def test_a_configuration_that_is_wrong(tmp_path):
    file = tmp_path / "standalone.conf"
    file.write_text("brokerServicePort=many\n")
    arguments = ("--config", file, "--metadata-store", "zk:h:2181")
    assert "brokerServicePort" in refusal(*arguments)
