"""What a broker that nobody uses yet has loaded: each library costs a start and an idle process."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
from cli.commands import load_less
load_less()
import trio
from broker.assembly.app import running_broker
from broker.ground.config import BrokerConfig

def fetch(url):
    import urllib.request
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.status

async def main():
    config = BrokerConfig(brokerServicePort=0, webServicePort=0)
    async with running_broker(config, None) as broker:
        idle = sorted(sys.modules)
        url = broker.web_service_url + "/admin/v2/clusters"
        status = await trio.to_thread.run_sync(fetch, url)
        print(json.dumps([idle, sorted(sys.modules), status]))

trio.run(main)
"""
NOT_LOADED = {
    "cryptography": "certificates and keys",
    "fastavro": "policies of topics",
    "jwt": "tokens",
    "web.responses": "answers to HTTP requests",
    "kazoo": "ZooKeeper",
    "broker.http.routes": "HTTP requests",
    "broker.cluster": "clusters",
    "autorecovery": "clusters",
    "security.tls": "TLS",
}

NEVER_LOADED = ("starlette", "anyio", "asyncio.base_events", "http.cookies", "mimetypes", "_ssl")


def test_a_broker_at_rest_has_not_loaded_what_only_some_brokers_need() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    idle, asked, status = json.loads(done.stdout)
    assert [name for name in NOT_LOADED if name in idle] == []
    # Some modules import these, but none uses them.
    assert [name for name in ("asyncio.base_events", "_hashlib", "_ssl") if name in idle] == []
    # The routes came with the first request.
    assert "broker.http.routes" in asked
    # They brought no framework of HTTP, nor what such ones import.
    assert [name for name in NEVER_LOADED if name in asked] == []
    assert status == 200


OTHER_COMMAND = """
import gc, sys
from cli.__main__ import main
sys.argv = ["vela", "tokens", "--help"]
try:
    main()
finally:
    print("collects", gc.isenabled())
"""


def test_a_command_that_is_no_server_collects_its_garbage() -> None:
    done = subprocess.run(
        [sys.executable, "-c", OTHER_COMMAND],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.splitlines()[-1] == "collects True"
