"""Kill a server with SIGKILL while policies of topics are changed, and look what is in force then.

`python -m tests.crash.policies_kill9 --rounds 20 --seed 1` starts `vela standalone` on loopback,
changes policies of several topics as fast as they are answered, and kills the server, mostly
between the write of a change and its answer, now and then while the log of policies is compacted.
After the restart each policy is the one that was answered last, or the one of the request that was
not answered; nothing else, and no other policy of the topic is lost with it. Prints a summary and a
line of JSON. Exit status 1: something did not hold.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, final

from tests.crash.command_line import common_parser, tell
from tests.server_process import VELA, ServerFailed, ServerProcess

CONFIGURATION: Final = """\
brokerServiceCompactionMonitorIntervalInSeconds=1
managedLedgerMinLedgerRolloverTimeMinutes=0
"""
TOPICS: Final = 4
FIELDS: Final = ("maxProducers", "maxConsumers")
LOAD_SECONDS: Final = (0.2, 4.0)
READY_SECONDS_MAX: Final = 240.0


@dataclass
class Options:
    """One run."""

    rounds: int
    seed: int
    directory: Path


@final
@dataclass
class Policy:
    """One policy of a topic, by what was answered."""

    path: str
    answered: int | None = None
    asked: int | None = None
    """The value of the request that was not answered; None: all were."""

    def may_be(self, found: int | None) -> bool:
        """Whether it may have this value after a kill."""
        return found in ({self.answered} | ({self.asked} if self.asked is not None else set()))


@dataclass
class Report:
    """What a run has found."""

    seed: int
    rounds: int = 0
    answered: int = 0
    in_doubt: int = 0
    in_doubt_kept: int = 0
    compacted: int = 0
    """Rounds after which the log was found compacted."""
    violations: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """In one paragraph."""
        outcome = "; ".join(self.violations) or "everything held"
        return (
            f"{self.rounds} rounds, seed {self.seed}: {self.answered} changes answered, "
            f"{self.in_doubt} were not ({self.in_doubt_kept} of them made), log compacted after "
            f"{self.compacted} rounds: {outcome}"
        )


@final
class Run:
    """See the module docstring."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._random = random.Random(options.seed)
        configuration = options.directory / "vela.conf"
        configuration.write_text(CONFIGURATION)
        self._server = ServerProcess(options.directory, f"{VELA} --config {configuration}")
        self._policies = [
            [Policy(f"t{number}/{name}") for name in FIELDS] for number in range(TOPICS)
        ]
        self.report = Report(options.seed)

    def run(self) -> Report:
        """All rounds. The server is killed at the end."""
        try:
            for number in range(self._options.rounds):
                self._start()
                if number == 0:
                    for topic in range(TOPICS):
                        self._ask("PUT", f"t{topic}")
                self._load()
                self._server.wait_ended()
                self._start()
                self._check()
                self.report.rounds += 1
                self._server.kill()
                self._server.wait_ended()
        except ServerFailed as failed:
            self.report.violations.append(str(failed))
        finally:
            self._server.kill()
            self._server.wait_ended()
        return self.report

    def _start(self) -> None:
        self._server.start()
        self._server.wait_ready(READY_SECONDS_MAX)

    def _load(self) -> None:
        threads = [
            threading.Thread(target=self._change, args=(policies, self._random.random()))
            for policies in self._policies
        ]
        for thread in threads:
            thread.start()
        time.sleep(self._random.uniform(*LOAD_SECONDS))
        self._server.kill()
        for thread in threads:
            thread.join()

    def _change(self, policies: list[Policy], seed: float) -> None:
        """The policies of one topic in turn, until the server is gone."""
        random_of_topic = random.Random(seed)
        while True:
            policy = random_of_topic.choice(policies)
            policy.asked = random_of_topic.randrange(1, 1_000_000)
            try:
                self._ask("POST", policy.path, policy.asked)
            except OSError:
                return
            policy.answered, policy.asked = policy.asked, None
            self.report.answered += 1

    def _check(self) -> None:
        for policies in self._policies:
            for policy in policies:
                found = self._ask("GET", policy.path)
                if not policy.may_be(found):
                    self.report.violations.append(f"{policy} is {found} after a kill")
                if policy.asked is not None:
                    self.report.in_doubt += 1
                    self.report.in_doubt_kept += found == policy.asked
                policy.answered, policy.asked = found, None
        stats = self._ask("GET", "__change_events/internalStats")
        self.report.compacted += "CompactedTopicLedger" in json.dumps(stats["cursors"])

    def _ask(self, method: str, path: str, body: object = None) -> object:
        url = f"http://127.0.0.1:{self._server.web_port}/admin/v2/persistent/public/default/{path}"
        request = urllib.request.Request(url, method=method)
        data = None
        if body is not None:
            request.add_header("Content-Type", "application/json")
            data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, data, timeout=60) as answer:
                raw = answer.read()
        except urllib.error.HTTPError as error:
            raise ServerFailed(f"{method} {path}: {error.code} {error.read()!r}") from None
        except OSError:
            raise
        except Exception as broken:  # the answer was cut off
            raise OSError(str(broken)) from None
        return json.loads(raw) if raw else None


def main(arguments: list[str] | None = None) -> int:
    """0: everything held."""
    given = common_parser("tests.crash.policies_kill9", 1.0, __doc__).parse_args(arguments)
    directory = given.directory or Path(tempfile.mkdtemp(prefix="policies-kill9-"))
    directory.mkdir(parents=True, exist_ok=True)
    report = Run(Options(given.rounds, given.seed, directory)).run()
    return tell(given, directory, report.summary(), asdict(report), report.violations)


if __name__ == "__main__":
    sys.exit(main())
