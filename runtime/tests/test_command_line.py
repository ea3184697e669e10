"""Signals that stop a process."""

import signal

import trio

from runtime.command_line import REPEAT_SECONDS, watch_signals


class Ended(Exception):
    pass


async def test_a_repeated_signal_of_one_request_lets_the_process_end_cleanly(
    autojump_clock, monkeypatch
):
    ended_at = []

    def end(_status):
        ended_at.append(trio.current_time())
        raise Ended

    monkeypatch.setattr("os._exit", end)
    send, receive = trio.open_memory_channel(10)
    stop = trio.Event()
    started = trio.current_time()

    async def watch():
        try:
            await watch_signals(receive, stop)
        except Ended:
            return

    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch)
        for _ in range(3):  # as `timeout` does
            await send.send(signal.SIGTERM)
            await trio.sleep(0.01)
        assert stop.is_set()
        assert ended_at == []
        await trio.sleep(REPEAT_SECONDS)
        await send.send(signal.SIGTERM)
    assert ended_at[0] - started > REPEAT_SECONDS
