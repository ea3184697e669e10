"""One run of `vela perf fanout`: processes with consumers, one publisher, a report.

    start the processes, all connections closed    -> they are ready
    open the publisher (this creates the topic)
    "go"                                           -> every consumer is subscribed or has failed
    one message that is not measured               -> all have it, its content checked in full
    the measured messages, on schedule             -> all have them, or the drain time is over
    "resume", if some are stuck                    -> these have everything as well
    "stop"                                         -> results

Every wait has an end. The publisher runs in this process, which does nothing else meanwhile.
"""

from __future__ import annotations

import json
import os
import resource
import secrets
import time
import urllib.error
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, final
from urllib.parse import quote

from cli.perf import report as reports
from cli.perf.blocking_connection import ConnectionFailed
from cli.perf.consumers import Behaviour
from cli.perf.generator_processes import Processes, RunFailed
from cli.perf.neighbour import Neighbourhood, NeighbourPlan
from cli.perf.process_meter import NoSuchProcess, Usage, usage
from cli.perf.publisher import Publisher
from cli.perf.samples import Samples
from cli.perf.stage_metrics import Stage, stages
from cli.perf.target import BadTarget, target_of
from cli.perf.worker import (
    CONNECTED,
    FAILED,
    RECEIVED,
    SUBSCRIBED,
    WorkerPlan,
    WorkerResult,
    prepare_recordings,
    recording_path,
)
from protocol import pulsar_api_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable

    from cli.perf.target import Target

WARM_UP_MESSAGES: Final = 1
POLL_SECONDS: Final = 0.05
HTTP_SECONDS_MAX: Final = 15.0
FILES_RESERVED: Final = 100
SUBSCRIPTION_TYPES: Final = {
    "exclusive": pb.CommandSubscribe.Exclusive,
    "shared": pb.CommandSubscribe.Shared,
    "failover": pb.CommandSubscribe.Failover,
}
BROADCAST: Final = {"vela.broadcast": "true"}


class Progress(Protocol):
    """Shows the progress to a person."""

    def phase(self, name: str, length: int) -> None:
        """A new bar."""

    def reached(self, count: int) -> None:
        """Report that this much of it is done."""

    def done(self) -> None:
        """No bar any more."""

    def note(self, text: str) -> None:
        """A notice for the user that is not a failure of the run."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command line; see docs/perf-fanout.md."""

    service_url: str
    http_url: str
    broker_pid: int | None
    mode: str
    consumers: int
    connections: int
    processes: int
    messages: int
    rate: float
    size: int
    acks: bool
    lookups: bool
    topic: str
    """Empty: a new one, which is deleted afterwards if `http_url` is set."""
    subscription: str
    subscription_type: str
    receiver_queue: int
    window: int
    stuck_percent: float
    unacked_percent: float
    connect_timeout_seconds: float
    drain_seconds: float
    neighbour_rate: float = 0.0
    neighbour_seconds: float = 10.0
    neighbour_url: str = ""
    trust_cert_file: str = ""
    auth_params: str = field(default="", repr=False)
    samples: str = ""
    """Directory for every single delivery as CSV; empty: not recorded."""


def plans(options: Options, topic: str, run_id: bytes, target: Target) -> list[WorkerPlan]:
    """The plan of each process: consumers over connections, connections over processes. Consumers
    that follow each other are on different connections, as with client libraries."""
    connections = min(options.connections, options.consumers)
    spread = [
        (first, len(range(first, options.consumers, connections))) for first in range(connections)
    ]
    own = options.mode == "own"
    processes = min(options.processes, connections)
    return [
        WorkerPlan(
            target=target,
            topic=topic,
            subscription=options.subscription,
            own=own,
            name_prefix=f"perf-{run_id.hex()[:6]}",
            sub_type=SUBSCRIPTION_TYPES[options.subscription_type],
            metadata={} if own else BROADCAST,
            permits=options.receiver_queue,
            behaviour=Behaviour(
                run_id=run_id,
                window=options.window,
                lookups=options.lookups,
                acks=options.acks,
                stuck_percent=options.stuck_percent,
                unacked_percent=options.unacked_percent,
            ),
            message_bytes_max=options.size + 1024,
            connections=spread[number::processes],
            distance=connections,
            recording_path=str(recording_path(options.samples, number)) if options.samples else "",
            recorded_from=WARM_UP_MESSAGES,
        )
        for number in range(processes)
    ]


def allow_open_files(wanted: int) -> None:
    """Raise the limit of open files of this process and its children, if necessary.

    Raises: RunFailed: the hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise RunFailed(
            f"{wanted} open files are needed per process and the limit is {hard}:"
            " raise it (ulimit -Hn, LimitNOFILE=), or use more --processes or fewer --connections"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@final
class FanoutRun:
    """See the module docstring."""

    def __init__(self, options: Options, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self._run_id = secrets.token_bytes(8)
        self._topic = options.topic or (
            f"persistent://public/default/perf-fanout-{self._run_id.hex()}"
        )
        self._neighbour: Neighbourhood | None = None
        try:
            self._target = target_of(
                options.service_url, options.trust_cert_file, options.auth_params
            )
        except BadTarget as error:
            raise RunFailed(str(error)) from None
        self._stuck = sum(
            Behaviour(self._run_id, 1, True, True, options.stuck_percent).is_stuck(index)
            for index in range(options.consumers)
        )

    def run(self) -> reports.Report:
        """Raises: RunFailed."""
        options = self._options
        work = plans(options, self._topic, self._run_id, self._target)
        if options.samples:
            prepare_recordings(options.samples)
        allow_open_files(max(len(plan.connections) for plan in work) + FILES_RESERVED)
        try:
            with ExitStack() as stack:
                processes = stack.enter_context(Processes(work))
                processes.wait_ready()
                publisher = stack.enter_context(
                    Publisher(self._target, self._topic, self._run_id, options.size)
                )
                if options.neighbour_rate:
                    self._neighbour = stack.enter_context(
                        Neighbourhood(self._neighbour_plan(), options.neighbour_seconds)
                    )
                return self._measure(processes, publisher)
        except EOFError:
            raise RunFailed("a process of the load generator has ended") from None
        except OSError as error:
            raise RunFailed(f"{options.service_url}: {error.strerror or error}") from None
        except ConnectionFailed as error:
            raise RunFailed(f"{options.service_url}: {error}") from None
        except NoSuchProcess as error:
            raise RunFailed(f"--broker-pid: {error}") from None
        finally:
            self._progress.done()
            if not options.topic:
                self._delete_topic(self._topic)
            if self._neighbour is not None and not options.neighbour_url:
                self._delete_topic(self._neighbour.topic)

    def _neighbour_plan(self) -> NeighbourPlan:
        options = self._options
        run_id = secrets.token_bytes(8)
        elsewhere = bool(options.neighbour_url)
        try:
            target = self._target.at(options.neighbour_url) if elsewhere else self._target
        except BadTarget as error:
            raise RunFailed(str(error)) from None
        return NeighbourPlan(
            target=target,
            topic=f"persistent://public/default/perf-neighbour-{run_id.hex()}",
            rate=options.neighbour_rate,
            run_id=run_id,
            beside=None if elsewhere else (self._topic, self._run_id),
            beside_size_bytes=options.size,
        )

    def _measure(self, processes: Processes, publisher: Publisher) -> reports.Report:
        options, neighbour = self._options, self._neighbour
        if neighbour is not None:
            neighbour.measure_alone()
        before = self._usage()
        begun_ns = time.monotonic_ns()
        self._subscribe_all(processes, publisher)
        subscribed = self._usage()
        receivers = options.consumers - self._stuck - processes.total(FAILED)
        self._progress.phase("warming up", receivers)
        for _ in range(WARM_UP_MESSAGES):
            publisher.publish()
        self._wait_received(processes, publisher, receivers * WARM_UP_MESSAGES)
        if neighbour is not None:
            self._progress.phase("neighbour", 1)
            neighbour.measure_before(publisher.listen)
        stages_before = self._stages()
        start, own_start = self._usage(), usage(os.getpid())
        expected = receivers * (WARM_UP_MESSAGES + options.messages)
        self._progress.phase("delivering", expected)
        self._publish(processes, publisher)
        self._wait_received(processes, publisher, expected)
        end, own_end = self._usage(), usage(os.getpid())
        stages_after = self._stages()
        if neighbour is not None:
            neighbour.end()
        resumed = self._resume(processes, publisher)
        results = processes.stop(publisher.published)
        ended_ns = max(result.subscribed_at_ns for result in results)
        subscribe_seconds = max(0, ended_ns - begun_ns) / 1e9
        report = self._report(results, receivers * options.messages, subscribe_seconds)
        report.publish = reports.publish_figures(publisher.receipt_times_ns[WARM_UP_MESSAGES:])
        if resumed:
            resumed["lost"] = sum(result.lost_by_stuck for result in results)
            report.resumed = resumed
        if before and subscribed and start and end:
            report.broker = reports.broker_use(before, subscribed, start, end, options.messages)
        own_seconds = own_end.cpu_seconds - own_start.cpu_seconds
        report.generator_cpu_seconds_per_message = own_seconds / options.messages
        report.stages = reports.stage_figures(stages_before, stages_after)
        report.neighbour = {} if neighbour is None else neighbour.figures()
        return report

    def _subscribe_all(self, processes: Processes, publisher: Publisher) -> None:
        consumers = self._options.consumers
        self._progress.phase("subscribing", consumers)
        processes.tell("go")
        ended = self._wait(
            publisher,
            lambda: processes.total(SUBSCRIBED) + processes.total(FAILED),
            consumers,
            self._options.connect_timeout_seconds,
        )
        if not ended:
            raise RunFailed(
                f"{processes.total(SUBSCRIBED):,} of {consumers:,} consumers on"
                f" {processes.total(CONNECTED):,} connections were subscribed in"
                f" {self._options.connect_timeout_seconds:g} s: see --connect-timeout"
            )

    def _wait(
        self,
        publisher: Publisher,
        reached: Callable[[], int],
        wanted: int,
        seconds_max: float,
    ) -> bool:
        """Wait until this count is reached. Returns whether it was."""
        deadline = time.monotonic() + seconds_max
        while True:
            count = reached()
            self._progress.reached(count)
            if count >= wanted:
                return True
            if time.monotonic() > deadline:
                return False
            publisher.listen(POLL_SECONDS)

    def _wait_received(self, processes: Processes, publisher: Publisher, wanted: int) -> float:
        begun = time.monotonic()
        self._wait(
            publisher, lambda: processes.total(RECEIVED), wanted, self._options.drain_seconds
        )
        return time.monotonic() - begun

    def _publish(self, processes: Processes, publisher: Publisher) -> None:
        interval = 1 / self._options.rate
        begun = time.monotonic()
        for number in range(self._options.messages):
            due = begun + number * interval
            while (left := due - time.monotonic()) > 0:
                publisher.listen(min(left, POLL_SECONDS))
                self._progress.reached(processes.total(RECEIVED))
            publisher.publish()

    def _resume(self, processes: Processes, publisher: Publisher) -> dict[str, float | int | None]:
        if not self._stuck:
            return {}
        wanted = processes.total(RECEIVED) + self._stuck * publisher.published
        self._progress.phase("resuming", wanted)
        processes.tell("resume")
        return {
            "consumers": self._stuck,
            "seconds": self._wait_received(processes, publisher, wanted),
        }

    def _report(
        self, results: list[WorkerResult], expected: int, subscribe_seconds: float
    ) -> reports.Report:
        samples = Samples()
        connect_times_ns: list[int] = []
        failures: dict[str, int] = {}
        for result in results:
            samples.extend(result.samples)
            connect_times_ns += result.connect_times_ns
            for reason, count in result.failures.items():
                failures[reason] = failures.get(reason, 0) + count
        connect, connect_histogram = reports.connect_figures(connect_times_ns)
        delivery, delivery_histogram = reports.delivery_figures(samples, WARM_UP_MESSAGES)
        lost = sum(result.lost for result in results)
        return reports.Report(
            options={
                name: value
                for name, value in asdict(self._options).items()
                if name != "auth_params"  # a credential
            }
            | {"topic": self._topic},
            subscribe_all_seconds=subscribe_seconds,
            connect=connect,
            failed=self._options.consumers - len(connect_times_ns),
            failures=failures,
            messages=self._options.messages,
            delivery=delivery,
            expected=expected,
            received=sum(count for _, count in samples.weighted_seconds(WARM_UP_MESSAGES)),
            lost=lost,
            duplicated=sum(result.duplicated for result in results),
            out_of_order=sum(result.out_of_order for result in results),
            corrupt=sum(result.corrupt for result in results),
            foreign=sum(result.foreign for result in results),
            publish={},
            generator_cpu_seconds=sum(result.cpu_seconds for result in results),
            connect_histogram=connect_histogram,
            delivery_histogram=delivery_histogram,
        )

    # --- the broker ---------------------------------------------------------------------

    def _usage(self) -> Usage | None:
        process_id = self._options.broker_pid
        return None if process_id is None else usage(process_id)

    def _stages(self) -> dict[str, Stage]:
        if not self._options.http_url or self._options.mode == "own":
            return {}
        url = f"{self._options.http_url.rstrip('/')}/metrics"
        try:
            with self._target.request(url, HTTP_SECONDS_MAX) as answer:
                page = answer.read().decode()
        except (OSError, urllib.error.URLError) as error:
            raise RunFailed(f"{url}: {error}") from None
        return stages(page, self._topic, self._options.subscription)

    def _delete_topic(self, topic: str) -> None:
        """A topic of this run alone, and with it its subscriptions."""
        if not self._options.http_url:
            return
        name = quote(topic.replace("://", "/"))
        url = f"{self._options.http_url.rstrip('/')}/admin/v2/{name}?force=true"
        try:
            with self._target.request(url, 4 * HTTP_SECONDS_MAX, "DELETE"):
                pass
        except urllib.error.HTTPError as refused:
            refused.close()
            if refused.code != 404:
                self._progress.note(f"{topic} was not deleted: HTTP {refused.code}")
        except (OSError, urllib.error.URLError) as error:
            self._progress.note(f"{topic} was not deleted: {error}")


def write_json(report: reports.Report, path: os.PathLike[str]) -> None:
    """Write the report."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report.as_json(), file, indent=1)
        file.write("\n")
