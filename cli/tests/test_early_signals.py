"""Signals in the first second of a start, while modules are loaded: no traceback, and the status of
any other stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
SECONDS_MAX = 240.0
WITH_SIGNALS = [sys.executable, "-m", "runtime.testing.default_signals"]
INTERRUPTED = 128 + signal.SIGINT
SIGNAL_AT_AN_IMPORT = """
import importlib.abc, os, sys

class SignalAtImport(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["SIGNAL_AT"]:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), int(os.environ["SIGNAL_NUMBER"]))

sys.meta_path.insert(0, SignalAtImport())
"""


def run(tmp_path, module, number, *arguments):
    """`vela` which gets a signal when it imports that module."""
    (tmp_path / "sitecustomize.py").write_text(SIGNAL_AT_AN_IMPORT)
    return subprocess.run(
        [*WITH_SIGNALS, sys.executable, "-m", "cli", *arguments],
        capture_output=True,
        text=True,
        cwd=TREE,
        timeout=SECONDS_MAX,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "SIGNAL_AT": module,
            "SIGNAL_NUMBER": str(int(number)),
        },
    )


@pytest.mark.parametrize(
    ("module", "number"),
    [
        ("cli.commands", signal.SIGINT),
        ("click", signal.SIGINT),
        ("settings.reading", signal.SIGTERM),
        ("structlog", signal.SIGINT),
        ("trio", signal.SIGHUP),
        ("broker.assembly.app", signal.SIGINT),
    ],
)
def test_a_signal_while_a_broker_is_loaded_is_a_clean_stop(tmp_path, module, number):
    done = run(
        tmp_path,
        module,
        number,
        *("standalone", "--in-memory", "--broker-port", "0", "--web-port", "0"),
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "Traceback" not in done.stderr
    assert "KeyboardInterrupt" not in done.stderr


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("trio", ["standalone", "--brokers", "2"]),
        ("bookie.process.config", ["bookie"]),
        ("autorecovery.config", ["autorecovery"]),
        ("broker.assembly.cluster_config", ["broker"]),
    ],
)
def test_every_server_is_stopped_cleanly_while_it_is_loaded(tmp_path, module, arguments):
    done = run(tmp_path, module, signal.SIGINT, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("click", ["tokens", "create-secret-key"]),
        ("security.authentication.tokens_command", ["tokens", "create-secret-key"]),
        ("inspection.files", ["ledger", "journal", "0.txn"]),
        ("broker.assembly.parts", ["bookie", "rebuild-index"]),
        ("inspection.command", ["ledger", "--help"]),
    ],
)
def test_ctrl_c_while_a_tool_is_loaded_says_nothing_and_is_no_success(tmp_path, module, arguments):
    done = run(tmp_path, module, signal.SIGINT, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (INTERRUPTED, "", "")


def test_an_ignored_signal_stays_ignored_while_a_broker_is_loaded(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SIGNAL_AT_AN_IMPORT)
    done = subprocess.run(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-m", "cli", "--version"],
        capture_output=True,
        cwd=TREE,
        timeout=SECONDS_MAX,
        env={
            **os.environ,
            "PYTHONPATH": str(tmp_path),
            "SIGNAL_AT": "click",
            "SIGNAL_NUMBER": str(int(signal.SIGHUP)),
        },
    )
    assert done.returncode == 0
