"""The server process of the tests: a failed start leaves nothing running."""

from __future__ import annotations

import gc
import os
import sys

import pytest

from tests.server_process import ServerFailed, ServerProcess


@pytest.mark.parametrize(
    ("program", "complaint"),
    [("import time; time.sleep(600)", "not ready in"), ("print('no port')", "no port")],
)
def test_a_server_that_does_not_become_ready_is_ended_and_reaped(tmp_path, program, complaint):
    server = ServerProcess(tmp_path, f'{sys.executable} -c "{program}"')
    server.start()
    pid = server.pid
    with pytest.raises(ServerFailed, match=complaint):
        server.wait_ready(30 if complaint == "no port" else 0.1)
    assert server.has_ended()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    del server
    gc.collect()  # a process that was not waited for would complain here
