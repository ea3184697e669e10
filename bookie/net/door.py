"""What a connection passes before a bookie serves it: nothing, or BookKeeper's START_TLS.

A client that wants TLS asks for it with its first request, in version 3. The bookie agrees, and TLS
begins with the next byte. Source: `BookieRequestProcessor` and `AuthHandler` of BookKeeper 4.17.

With `tlsClientAuthentication` nothing else is served: any other request is refused with EUA
(BookKeeper serves it). Without it, clients that do not ask for TLS are served without.

Bytes that came after START_TLS and before the answer end the connection: an attacker who put them
there could pass them off as sent with TLS.

What a stranger can cost: one unfinished frame of 64 KB, 100 refused requests, 30 s, and the bounds
of handshakes. The number of strangers at a time is bounded; the one that has waited longest makes
room for the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, final

import structlog
import trio

from bookie.net.refusals import refusal
from protocol.bookkeeper import v3
from protocol.bookkeeper.messages import OK, UNAUTHORIZED, StartTlsRequest, StartTlsResponse
from protocol.bookkeeper.request_runs import RequestDecoder
from protocol.errors import RemoteProtocolError

if TYPE_CHECKING:
    from runtime.transport import Transport
    from security.tls import TlsPort

log = structlog.get_logger()

STRANGER_SECONDS_MAX: Final = 30.0
STRANGERS_MAX: Final = 1_024
STRANGER_FRAME_BYTES_MAX: Final = 64 * 1024
REFUSED_MAX: Final = 100
START_TLS_BYTES_MAX: Final = 64
"""A frame of START_TLS has 12 to 30 bytes, with its transaction id."""
_PREFIX_BYTES: Final = 4


@final
class Entered(NamedTuple):
    """A connection that is served."""

    transport: Transport
    first: bytes
    """The bytes that it has already sent."""


class Door(Protocol):
    """See the module docstring."""

    async def let_in(self, transport: Transport) -> Entered | None:
        """None: it has ended, and the reason was told.

        Raises: trio.BrokenResourceError: the peer is gone, or TLS failed. RemoteProtocolError.
        """

    async def run(self) -> None:
        """Until cancelled."""

    def series(self) -> list[tuple[str, str, str, int]]:
        """For Prometheus: name, kind, help text, value."""


@final
class OpenDoor:
    """Everyone is served."""

    async def let_in(self, transport: Transport) -> Entered:
        """Never waits."""
        return Entered(transport, b"")

    async def run(self) -> None:
        """There is nothing to do."""
        await trio.sleep_forever()

    def series(self) -> list[tuple[str, str, str, int]]:
        """Nothing is counted."""
        return []


@final
class TlsDoor:
    """See the module docstring."""

    def __init__(
        self, port: TlsPort, *, demands_tls: bool, strangers_max: int = STRANGERS_MAX
    ) -> None:
        """`demands_tls`: who does not ask for TLS is refused. `strangers_max`: connections that
        have not passed, which have descriptors, too."""
        self._port = port
        self._demands_tls = demands_tls
        self._strangers_max = strangers_max
        self._strangers: dict[trio.CancelScope, None] = {}
        """In the order in which they came."""
        self._refused = 0

    async def run(self) -> None:
        """Use files that have changed."""
        await self._port.run()

    def series(self) -> list[tuple[str, str, str, int]]:
        """See Door."""
        refused = (
            "vela_bookie_tcp_strangers_refused_total",
            "counter",
            "Requests of clients that did not begin with START_TLS, refused",
            self._refused,
        )
        return [*self._port.handshakes.series(), refused]

    async def let_in(self, transport: Transport) -> Entered | None:
        """See Door."""
        if len(self._strangers) >= self._strangers_max:
            next(iter(self._strangers)).cancel()
        scope = trio.CancelScope(deadline=trio.current_time() + STRANGER_SECONDS_MAX)
        self._strangers[scope] = None
        try:
            with scope:
                return await (
                    self._refuse_all_else(transport)
                    if self._demands_tls
                    else self._look_at_first(transport)
                )
        finally:
            del self._strangers[scope]
        log.warning("bookie connection closed: it did not authenticate", peer=transport.peer)
        return None

    async def _look_at_first(self, transport: Transport) -> Entered:
        received = b""
        while not _is_enough(received):
            data = await transport.receive()
            received += data
            if not data:
                return Entered(transport, received)
        asked = _start_tls_in(received)
        if asked is None:
            return Entered(transport, received)
        return await self._secured(transport, asked.txn_id)

    async def _refuse_all_else(self, transport: Transport) -> Entered | None:
        """Raises: RemoteProtocolError."""
        decoder = RequestDecoder(STRANGER_FRAME_BYTES_MAX)
        refused, is_told = 0, False
        while refused < REFUSED_MAX:
            data = await transport.receive()
            asked = decoder.feed(data)
            for number, request in enumerate(asked):
                if isinstance(request, StartTlsRequest):
                    if number + 1 < len(asked) or decoder.pending_size_bytes:
                        raise RemoteProtocolError("bytes between START_TLS and its answer")
                    return await self._secured(transport, request.txn_id)
                refused += 1
                self._refused += 1
                await _send(transport, refusal(request, UNAUTHORIZED))
            if decoder.error is not None:
                raise decoder.error
            if not data:
                return None
            if asked and not is_told:
                is_told = True
                log.warning(
                    "bookie request refused: the client did not begin with START_TLS, and "
                    "tlsClientAuthentication=true",
                    peer=transport.peer,
                    request=type(asked[0]).__name__,
                )
        return None

    async def _secured(self, transport: Transport, txn_id: int) -> Entered:
        """Raises: trio.BrokenResourceError."""
        await _send(transport, [v3.encode_response(StartTlsResponse(OK, txn_id))])
        secured = self._port.over(transport)
        try:
            await secured.secure()
        except BaseException:
            secured.close()
            raise
        return Entered(secured, b"")


def _is_enough(received: bytes) -> bool:
    """Whether it is known what the first request is: START_TLS, or another one."""
    if len(received) < _PREFIX_BYTES:
        return False
    size = int.from_bytes(received[:_PREFIX_BYTES], "big")
    return size > START_TLS_BYTES_MAX or len(received) >= _PREFIX_BYTES + size


def _start_tls_in(received: bytes) -> StartTlsRequest | None:
    """Raises: RemoteProtocolError: something follows it."""
    size = int.from_bytes(received[:_PREFIX_BYTES], "big")
    if size > START_TLS_BYTES_MAX:
        return None
    request = v3.decode_request(received[_PREFIX_BYTES : _PREFIX_BYTES + size])
    if not isinstance(request, StartTlsRequest):
        return None
    if len(received) > _PREFIX_BYTES + size:
        raise RemoteProtocolError("bytes between START_TLS and its answer")
    return request


async def _send(transport: Transport, buffers: list[bytes]) -> None:
    left = memoryview(b"".join(buffers))
    while left:
        left = left[await transport.send([left]) :]
