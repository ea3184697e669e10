"""Signs of life of a connection."""

from __future__ import annotations

from broker.net.keep_alive import KeepAlive, KeepAliveAction, OutputStall


def connected(interval=30.0):
    keep_alive = KeepAlive(interval, handshake_seconds=10.0, now=0.0)
    keep_alive.handshake_done()
    return keep_alive


def test_silence_leads_to_a_ping_and_then_to_the_end():
    keep_alive = connected()
    assert keep_alive.check(29.9) is KeepAliveAction.NOTHING
    assert keep_alive.check(30.0) is KeepAliveAction.SEND_PING
    assert keep_alive.check(59.9) is KeepAliveAction.NOTHING
    assert keep_alive.check(60.0) is KeepAliveAction.CLOSE_SILENT


def test_any_byte_is_a_sign_of_life():
    keep_alive = connected()
    assert keep_alive.check(30.0) is KeepAliveAction.SEND_PING
    keep_alive.received(31.0)
    assert keep_alive.check(60.0) is KeepAliveAction.NOTHING
    assert keep_alive.check(61.0) is KeepAliveAction.SEND_PING


def test_a_client_that_never_says_connect_is_closed():
    keep_alive = KeepAlive(30.0, handshake_seconds=10.0, now=0.0)
    assert keep_alive.check(9.9) is KeepAliveAction.NOTHING
    assert keep_alive.check(10.0) is KeepAliveAction.CLOSE_NO_HANDSHAKE
    keep_alive.received(11.0)  # garbage is no handshake
    assert keep_alive.check(12.0) is KeepAliveAction.CLOSE_NO_HANDSHAKE


def test_output_stalls_when_nothing_is_taken_between_two_checks():
    stall = OutputStall(10)
    assert not stall.check(5, 100, 0)
    assert not stall.check(5, 100, 9)
    assert stall.check(5, 100, 10)
    assert not stall.check(5, 101, 11)
    assert not stall.check(0, 101, 30)
    assert not stall.check(5, 101, 31)
    assert stall.check(5, 101, 41)
