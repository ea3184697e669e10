"""State and metrics of autorecovery over HTTP, under BookKeeper's paths and names."""

import json

import httpx
import trio

from autorecovery.config import AutorecoveryConfig
from autorecovery.http import AutorecoveryState, RunningAutorecovery
from autorecovery.process import running_autorecovery
from autorecovery.tests.worlds import recovery_world
from bookie.process.cluster import initialize_ledgers
from bookie.process.identity import identity_of
from metadata.memory_store import MemoryStore
from runtime.testing.conditions import SECONDS_MAX, eventually_answered
from web.callers import CallerRules
from web.state import StateApplication

ROOT = "/api/v1/autorecovery"


async def get(application, path, method="GET"):
    transport = httpx.ASGITransport(application, raise_app_exceptions=True)
    async with httpx.AsyncClient(transport=transport, base_url="http://vela") as client:
        answer = await client.request(method, path)
        return answer.status_code, answer.text


def series(text):
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in text.splitlines())
        if name and not name.startswith("#")
    }


async def test_what_was_audited_and_copied_is_on_the_page():
    async with recovery_world(4, (2, 2, 2)) as world:
        writer, _recorder = await world.a_ledger()
        ledger_id = writer.ledger_id
        metadata = await world.metadata(ledger_id)
        lost = metadata.last_ensemble[1][0]
        auditor, worker = world.auditor(), world.worker()
        election = world.election(world.store, "worker-0")
        state = AutorecoveryState()
        application = StateApplication(CallerRules((), ["vela"]), state.answers())
        assert (await get(application, f"{ROOT}/status"))[0] == 503
        assert (await get(application, "/heartbeat")) == (200, "OK\n")
        state.running = RunningAutorecovery(
            world.store, world.marks, world.pool, auditor, election, worker, 0
        )
        none = (404, "No under replicated ledgers found")
        assert await get(application, f"{ROOT}/list_under_replicated_ledger") == none
        await world.lose(lost)
        await auditor.mark_lost(await world.registered())
        listed = f"{ROOT}/list_under_replicated_ledger"
        assert await get(application, listed) == (200, json.dumps([ledger_id]))
        status, text = await get(application, f"{listed}?printmissingreplica")
        assert (status, json.loads(text)) == (200, {str(ledger_id): [lost]})
        assert await get(application, f"{listed}?missingreplica=other") == none
        assert await get(application, f"{listed}?excludingmissingreplica={lost}") == none
        found = series((await get(application, "/metrics"))[1])
        assert found["auditor_NUM_UNDER_REPLICATED_LEDGERS_sum" + '{success="true"}'] == 1
        assert found["auditor_AUDIT_BOOKIES_TIME_count" + '{success="true"}'] == 1
        assert found["vela_autorecovery_under_replicated_ledgers"] == 1
        assert found["replication_worker_NUM_ENTRIES_WRITTEN"] == 0
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.run)
            await world.until_unmarked()
            await world.until(lambda: worker.ledgers_completed == 1)
            nursery.cancel_scope.cancel()
        found = series((await get(application, "/metrics"))[1])
        written = found["replication_worker_NUM_ENTRIES_WRITTEN"]
        assert written == worker.entries_copied > 0
        assert found["replication_worker_NUM_ENTRIES_READ"] >= written
        assert found["replication_worker_NUM_FULL_OR_PARTIAL_LEDGERS_REPLICATED"] == 1
        assert found["replication_worker_NUM_BYTES_WRITTEN_sum" + '{success="true"}'] > written
        await auditor.check_ledgers()
        found = series((await get(application, "/metrics"))[1])
        assert found["auditor_NUM_LEDGERS_CHECKED"] == 1


def config(**keys):
    return AutorecoveryConfig(
        bookieId="worker-0", allowLoopback=True, advertisedAddress="127.0.0.1", **keys
    )


async def running_on(store, keys):
    """The port of HTTP, and what it answered."""

    async def opened():
        await trio.lowlevel.checkpoint()
        return store

    settings = config(**keys)
    async with running_autorecovery(settings, identity_of(settings), opened) as running:
        if not running.http_port:
            return 0, {}
        base = f"http://127.0.0.1:{running.http_port}"
        await until_auditor(base)
        paths = ("/heartbeat", f"{ROOT}/who_is_auditor", f"{ROOT}/status", "/metrics", "/x")
        return running.http_port, {path: await fetched(base, path) for path in paths}


async def fetched(base, path):
    def fetch():
        with httpx.Client(timeout=SECONDS_MAX) as client:
            answer = client.get(base + path)
            return answer.status_code, answer.text

    return await trio.to_thread.run_sync(fetch)


async def until_auditor(base):
    async def is_known():
        return (await fetched(base, f"{ROOT}/who_is_auditor"))[0] == 200

    await eventually_answered(is_known)


async def test_the_process_serves_its_state_if_that_is_switched_on():
    store = MemoryStore()
    await initialize_ledgers(store)
    port, answers = await running_on(store, {"httpServerEnabled": True, "httpServerPort": 0})
    assert port
    assert answers["/heartbeat"] == (200, "OK\n")
    assert answers[f"{ROOT}/who_is_auditor"] == (200, "Auditor: worker-0")
    assert answers[f"{ROOT}/status"] == (200, '{"enabled": true}')
    assert answers["/x"][0] == 404
    status, text = answers["/metrics"]
    assert status == 200
    assert series(text)["vela_autorecovery_election_attempts"] >= 1


async def test_the_metrics_port_of_the_bookie_with_the_same_file_is_left_to_it():
    store = MemoryStore()
    await initialize_ledgers(store)
    provider = "org.apache.bookkeeper.stats.prometheus.PrometheusMetricsProvider"
    keys = {"statsProviderClass": provider, "prometheusStatsHttpPort": 0}
    assert await running_on(store, keys) == (0, {})
