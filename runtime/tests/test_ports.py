import json
import subprocess
import sys

from runtime.testing import ports
from runtime.testing.ports import free_ports

SERVERS = 200
FEW = (19_900, 19_999)


def test_no_server_is_given_a_port_that_another_one_was_given_before_it_listened():
    given = [port for _ in range(SERVERS) for port in free_ports(5)]

    assert len(set(given)) == len(given)


def test_no_port_is_given_that_another_process_was_given(monkeypatch):
    monkeypatch.setattr(ports, "LOWEST", FEW[0])
    monkeypatch.setattr(ports, "HIGHEST", FEW[1])
    given = free_ports(40)
    program = (
        "from runtime.testing import ports\n"
        f"ports.LOWEST, ports.HIGHEST = {FEW}\n"
        "print([ports.free_ports(1)[0] for _ in range(40)])"
    )

    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    others = json.loads(told.stdout)
    assert len({*given, *others}) == 80
