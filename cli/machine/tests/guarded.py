"""A machine that asks for credentials, its clients, and another user of the computer."""

import base64
import json
import os
import re
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path

import pulsar

from protocol.bookkeeper.v2 import encode_read_request
from security.authentication.tests.tokens import SECRET, token
from settings.reading import Setting

_PACKAGE = "org.apache.pulsar."
_LISTENING = "0A"
SECONDS_MAX = 60
FENCING = 1
ANY_LEDGERS = range(12)
"""The first ones of a new cluster, those of topics among them."""
_OTHER_USER = 65_534
_ATTACK = """
import json, os, socket, sys
user, attempts = json.load(sys.stdin)
os.setgroups([])
os.setgid(user)
os.setuid(user)
outcomes = []
for place, requests in attempts:
    family = socket.AF_UNIX if isinstance(place, str) else socket.AF_INET
    with socket.socket(family) as peer:
        peer.settimeout(20)
        try:
            peer.connect(place if isinstance(place, str) else tuple(place))
            for request in requests:
                peer.sendall(bytes.fromhex(request))
            outcomes.append("answered" if peer.recv(65536) else "closed")
        except OSError as error:
            outcomes.append(type(error).__name__)
json.dump(outcomes, sys.stdout)
"""


def credentials(**more):
    """The settings of a machine that asks for tokens."""
    keys = {
        "authenticationEnabled": "true",
        "authenticationProviders": f"{_PACKAGE}broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": "data:;base64," + base64.b64encode(SECRET).decode(),
        "authorizationEnabled": "true",
        "superUserRoles": "admin",
        "brokerClientAuthenticationPlugin": f"{_PACKAGE}client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token(sub='admin')}",
        "defaultRetentionTimeInMinutes": "-1",
        "defaultRetentionSizeInMB": "-1",
    }
    return [Setting(key, value, "test") for key, value in (keys | more).items()]


def client(service_url):
    return closing(
        pulsar.Client(
            service_url,
            authentication=pulsar.AuthenticationToken(token(sub="admin")),
            operation_timeout_seconds=SECONDS_MAX,
            logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
        )
    )


def send(service_url, topic, numbers):
    with client(service_url) as made:
        producer = made.create_producer(topic, send_timeout_millis=SECONDS_MAX * 1000)
        for number in numbers:
            producer.send(b"%d" % number)


def read(service_url, topic, count):
    with client(service_url) as made:
        reader = made.create_reader(topic, pulsar.MessageId.earliest)
        return [int(reader.read_next(SECONDS_MAX * 1000).data()) for _ in range(count)]


def layouts(web_service_url, topic):
    """What Spark jobs ask for that would read from bookies."""
    path = topic.replace("://", "/")
    request = urllib.request.Request(f"{web_service_url}/admin/v2/{path}/ledgerLayouts")
    request.add_header("Authorization", f"Bearer {token(sub='admin')}")
    with urllib.request.urlopen(request, timeout=SECONDS_MAX) as answer:
        return json.load(answer)


def entries_shown(socket_path, ledger_id, bookie_id):
    """By `vela ledger entries`, which reads from the bookie."""
    options = ["--metadata-store", f"unix:{socket_path}", "--bookie", bookie_id, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "cli", "ledger", "entries", str(ledger_id), *options],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    return [json.loads(line)["entry"] for line in done.stdout.splitlines()]


def listening_ports(process_id):
    """(host, port) of each socket of IPv4 at which a process listens."""
    names = (os.readlink(each) for each in Path(f"/proc/{process_id}/fd").iterdir())
    inodes = {match[1] for name in names if (match := re.fullmatch(r"socket:\[(\d+)\]", name))}
    rows = [line.split() for line in Path(f"/proc/{process_id}/net/tcp").read_text().splitlines()]
    return {
        ("127.0.0.1", int(row[1].partition(":")[2], 16))
        for row in rows[1:]
        if row[3] == _LISTENING and row[9] in inodes
    }


def outcomes_for_another_user(places):
    """What somebody gets who asks at these places for entries, and fences: `answered`, or why not.

    A place is a path or (host, port).
    """
    requests = [
        encode_read_request(ledger_id, 0, flags, bytes(20)).hex()
        for ledger_id in ANY_LEDGERS
        for flags in (0, FENCING)
    ]
    done = subprocess.run(
        [sys.executable, "-c", _ATTACK],
        input=json.dumps([_OTHER_USER, [(place, requests) for place in places]]),
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    return dict(zip(places, json.loads(done.stdout), strict=True))
