"""The `vela` command: what it prints, what it refuses and how, and a clean stop."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

READY = re.compile(
    r"vela standalone ready: pulsar://127\.0\.0\.1:(\d+) http://127\.0\.0\.1:(\d+)\n"
)
ENVIRONMENT = {
    key: value for key, value in os.environ.items() if not key.startswith("PULSAR_PREFIX_")
}
SECONDS_MAX = 240


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    with_signals = [sys.executable, "-m", "runtime.testing.default_signals"]
    command = [sys.executable, "-m", "cli", "standalone", "--broker-port", "0"]
    return subprocess.Popen(
        [*with_signals, *command, "--web-port", "0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**ENVIRONMENT, **environment},
        cwd=Path(__file__).parents[2],
    )


def refusal(*arguments: str, **environment: str) -> str:
    process = start(*arguments, **environment)
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode != 0
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 1, err
    assert lines[0].startswith("vela: ")
    return lines[0]


@pytest.fixture
def running(tmp_path):
    process = start("--data-dir", str(tmp_path / "data"))
    try:
        line = process.stdout.readline()
        assert READY.fullmatch(line), (line, process.stderr.read() if not line else "")
        yield process, line
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_ready_line_refusals_of_a_second_one_and_clean_stop(running, tmp_path):
    process, line = running
    broker_port, web_port = map(int, READY.fullmatch(line).groups())
    with socket.create_connection(("127.0.0.1", web_port)) as connection:
        connection.sendall(b"GET /admin/v2/brokers/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")
    in_use = refusal("--data-dir", str(tmp_path / "data"))
    assert in_use.endswith(f"data is in use by process {process.pid}")
    port = refusal("--in-memory", "--broker-port", str(broker_port))
    assert f"cannot listen on 127.0.0.1:{broker_port} (brokerServicePort)" in port
    port = refusal("--in-memory", "--web-port", str(web_port))
    assert f"cannot listen on 127.0.0.1:{web_port} (webServicePort)" in port
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0, err
    assert out == ""
    assert "Traceback" not in err


def test_bookie_port_is_told_refused_when_taken_and_closed_at_the_stop():
    process = start("--in-memory", PULSAR_PREFIX_bookiePort="0")
    try:
        line = process.stdout.readline()
        told = re.search(r" bookie://127\.0\.0\.1:(\d+)\n", line)
        assert told, line
        bookie_port = told.group(1)
        with socket.create_connection(("127.0.0.1", int(bookie_port))) as connection:
            connection.sendall(bytes.fromhex("00000014020200000000000000000001") + bytes(8))
            assert connection.recv(4096)[8:12] == b"\0\0\0\1"  # no such ledger
            port = refusal("--in-memory", PULSAR_PREFIX_bookiePort=bookie_port)
            assert f"cannot listen on 127.0.0.1:{bookie_port} (bookiePort)" in port
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=SECONDS_MAX)
            assert connection.recv(4096) == b""
        assert (process.returncode, out) == (0, ""), err
        assert "Traceback" not in err
    finally:
        process.kill()
        process.communicate()


def test_a_stopped_broker_can_be_started_again(running, tmp_path):
    process, _ = running
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=SECONDS_MAX)
    assert process.returncode == 0
    again = start("--data-dir", str(tmp_path / "data"))
    try:
        assert READY.fullmatch(again.stdout.readline())
    finally:
        again.kill()
        again.communicate()


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("journalSyncDta=1", "unknown key 'journalSyncDta' (did you mean 'journalSyncData'?)"),
        ("maxMessageSize=many", "invalid value 'many' for maxMessageSize"),
        ("tlsEnabled=true", "tlsEnabled=true is not supported"),
        (
            "broadcastSubscriptionNamePattern=all-(",
            "invalid value 'all-(' for broadcastSubscriptionNamePattern: expected a regular"
            " expression, but missing ), unterminated subpattern at position 4",
        ),
    ],
)
def test_a_wrong_configuration_file_is_refused(tmp_path, line, complaint):
    path = tmp_path / "wrong.conf"
    path.write_text(f"{line}\n")
    assert f"{path}:1: {complaint}" in refusal("--in-memory", "--config", str(path))


def test_an_unknown_key_is_a_warning_unless_strict(tmp_path):
    path = tmp_path / "other.conf"
    path.write_text("maxMesageSize=1\nkeyOfALaterVersion=1\nbindAddress=0.0.0.0\n")
    arguments = ["--in-memory", "--config", str(path)]
    strict = refusal(*arguments, "--strict-config")
    assert f"{path}:1: unknown key 'maxMesageSize'" in strict
    process = start(*arguments)
    try:
        assert process.stdout.readline().startswith("vela standalone ready: pulsar://localhost:")
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=SECONDS_MAX)
    finally:
        process.kill()
        process.communicate()
    [unknown] = [line for line in err.splitlines() if "maxMessageSize" in line]
    assert "unknown key, ignored (did you mean 'maxMessageSize'?)" in unknown
    assert "keyOfALaterVersion" in err
    assert "listening on all addresses (bindAddress=0.0.0.0) without authentication" in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--broker-prt", "1"], "no such option '--broker-prt'"),
        (["--web-port", "http"], "'http' is not a valid integer"),
        (["--web-port", "70000"], "70000 is not in the range 0<=x<=65535"),
        (["--log-level", "loud"], "'loud' is not one of"),
        (["--data-dir"], "option '--data-dir' requires an argument"),
        (["more"], "unexpected extra argument (more)"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(arguments, complaint):
    line = refusal(*arguments)
    assert complaint in line.lower()
    assert line.endswith("--help)")


def test_a_wrong_command_is_refused_and_help_is_no_refusal():
    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-m", "cli", *arguments],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            env=ENVIRONMENT,
            cwd=Path(__file__).parents[2],
        )

    wrong = run("standalne")
    assert wrong.returncode != 0
    assert wrong.stderr.startswith("vela: No such command 'standalne'")
    assert len(wrong.stderr.splitlines()) == 1
    for arguments in (["--help"], ["standalone", "--help"]):
        helped = run(*arguments)
        assert (helped.returncode, helped.stderr) == (0, "")
        assert helped.stdout.startswith("Usage: vela")


def test_a_wrong_variable_and_a_missing_file_are_refused(tmp_path):
    text = refusal("--in-memory", PULSAR_PREFIX_webServicePort="http")
    assert "PULSAR_PREFIX_webServicePort: invalid value 'http'" in text
    assert "cannot read" in refusal("--in-memory", "--config", str(tmp_path / "no.conf"))


def test_a_data_directory_that_cannot_be_made_is_refused(tmp_path):
    text = refusal("--data-dir", str(tmp_path / "a,b"))
    assert "a,b: the bookie's files separate directories by commas" in text
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    text = refusal("--data-dir", str(tmp_path / "file" / "data"))
    assert "cannot use data directory" in text
    (tmp_path / "data" / "bookkeeper").mkdir(parents=True)
    (tmp_path / "data" / "bookkeeper" / "journal").write_text("")
    text = refusal("--data-dir", str(tmp_path / "data"))
    assert f"cannot read {tmp_path}/data/bookkeeper/journal/current/VERSION" in text


def snapshot(directory):
    return {
        path: (path.stat().st_mtime_ns, path.stat().st_mode, path.is_file() and path.read_bytes())
        for path in [directory, *directory.rglob("*")]
    }


def test_the_data_of_a_real_pulsar_is_refused_and_left_alone(tmp_path):
    directory = tmp_path / "data"
    (directory / "metadata").mkdir(parents=True)
    (directory / "metadata" / "CURRENT").write_text("MANIFEST-000005\n")
    before = snapshot(directory)
    text = refusal("--data-dir", str(directory))
    assert "it looks like the data of a real Pulsar" in text
    assert f"data directory {directory} holds metadata" in text
    assert snapshot(directory) == before


def test_a_copy_of_velas_data_without_its_lock_file_is_taken(tmp_path):
    directory = tmp_path / "a copy with spaces"
    for _ in range(2):
        process = start("--data-dir", str(directory))
        try:
            assert READY.fullmatch(process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=SECONDS_MAX)
        finally:
            process.kill()
            process.communicate()
        (directory / "vela.lock").unlink()
    assert {path.name for path in (directory / "bookkeeper").iterdir()} == {"journal", "ledgers"}


def pipeline_command(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli", "pipeline", "archive", "--topic", "a", "--help"],
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, **environment},
        cwd=Path(__file__).parents[2],
        timeout=SECONDS_MAX,
    )


def test_pipeline_jobs_are_handed_to_the_environment_that_has_spark():
    done = pipeline_command(VELA_PIPELINE_PYTHON="/bin/echo")

    assert (done.returncode, done.stdout) == (0, "-m pipeline archive --topic a --help\n")


def test_a_missing_environment_is_told_in_a_sentence():
    done = pipeline_command(VELA_PIPELINE_PYTHON="/nonexistent/python")

    assert done.returncode != 0
    assert "/nonexistent/python cannot be started: No such file or directory" in done.stderr


def test_an_advertised_address_that_is_no_host_is_refused():
    text = refusal("--in-memory", "--advertised-address", "http://x:80/")
    assert "advertisedAddress='http://x:80/' is no host" in text


def test_a_configuration_that_is_a_pipe_is_refused_without_waiting(tmp_path):
    path = tmp_path / "pipe.conf"
    os.mkfifo(path)
    text = refusal("--in-memory", "--config", str(path))
    assert text == f"vela: cannot read {path}: it is not a regular file"


@pytest.mark.parametrize("option", ["--data-dir", "--config"])
def test_an_empty_path_is_refused_and_is_not_the_working_directory(option):
    text = refusal(option, "")
    assert f"Invalid value for '{option}': the path is empty" in text


def test_settings_in_any_form_of_java_properties_have_their_effect(tmp_path):
    path = tmp_path / "forms.conf"
    path.write_text("bindAddress: \\\n   0.0.0.0\nadvertisedAddress broker.example.org\n")
    process = start("--in-memory", "--config", str(path))
    try:
        ready = process.stdout.readline()
    finally:
        process.kill()
        process.communicate()
    assert ready.startswith("vela standalone ready: pulsar://broker.example.org:")


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_all_addresses_of_ipv6_are_those_of_ipv4_as_well():
    process = start("--in-memory", "--bind-address", "::", PULSAR_PREFIX_bookiePort="0")
    try:
        ports = re.findall(r"localhost:(\d+)", process.stdout.readline())
        assert len(ports) == 3
        for port in ports:
            for host in ("127.0.0.1", "::1", "localhost"):
                socket.create_connection((host, int(port)), SECONDS_MAX).close()
    finally:
        process.kill()
        process.communicate()


def vela(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "cli", *arguments],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        env={**ENVIRONMENT, **environment},
        cwd=Path(__file__).parents[2],
    )


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_the_jobs_are_listed_without_the_environment_that_has_spark(arguments):
    done = vela("pipeline", *arguments, VELA_PIPELINE_PYTHON="/nonexistent/python")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: vela pipeline JOB")
    assert "archive" in done.stdout


def test_autorecovery_speaks_of_its_own_address():
    done = vela("autorecovery", PULSAR_PREFIX_advertisedAddress="http://x")
    assert done.stderr.startswith("vela: advertisedAddress='http://x' is no host")
    done = vela("autorecovery", PULSAR_PREFIX_listeningInterface="lo")
    assert "bookie" not in done.stderr
    assert "this autorecovery would be at 127.0.0.1" in done.stderr


def test_a_decommission_without_configuration_asks_which_bookie_is_meant():
    done = vela("bookie-decommission")
    assert done.returncode == 1
    assert done.stderr.startswith("vela: which bookie leaves, and of which cluster? Name its")


def test_a_command_that_waits_for_its_metadata_store_says_so():
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        url = f"zk:127.0.0.1:{nobody.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "cli", "ledger", "list", "--metadata-store", url],
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            cwd=Path(__file__).parents[2],
        )
        with process:
            first = process.stderr.readline()
            is_waiting = process.poll() is None
            process.kill()
    assert is_waiting
    assert "the metadata store does not answer yet" in first
    assert url in first
