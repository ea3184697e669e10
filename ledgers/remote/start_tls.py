"""Connections to bookies with TLS: BookKeeper's START_TLS, then TLS on the same connection.

Source: `PerChannelBookieClient.initiateTLS` of BookKeeper 4.17. The request and its answer are of
version 3, whatever is spoken afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import trio

from protocol.bookkeeper import v3
from protocol.bookkeeper.messages import OK, StartTlsRequest, StartTlsResponse
from protocol.errors import RemoteProtocolError
from security.handshakes import Handshakes
from security.tls_transport import TlsTransport

if TYPE_CHECKING:
    from ledgers.remote.network import Connect
    from runtime.transport import Transport
    from security.tls_client import TlsClientContexts

_PREFIX_BYTES: Final = 4
_ANSWER_BYTES_MAX: Final = 256
_TXN_ID: Final = 1


@final
class StartTls:
    """A `Connect` that asks for TLS on each connection of another one."""

    def __init__(self, contexts: TlsClientContexts, below: Connect) -> None:
        self._contexts = contexts
        self._below = below
        self._handshakes = Handshakes()

    async def __call__(self, host: str, port: int) -> Transport:
        """Raises: OSError: no connection, or the bookie has no TLS, or it is not trusted."""
        context = await self._contexts.current()
        plain = await self._below(host, port)
        try:
            await _ask(plain)
            secured = TlsTransport.of_client(plain, context, self._handshakes, host)
            await secured.secure()
        except (trio.BrokenResourceError, RemoteProtocolError) as error:
            plain.close()
            raise OSError(str(error)) from None
        except BaseException:
            plain.close()
            raise
        return secured


async def _ask(transport: Transport) -> None:
    """Raises: trio.BrokenResourceError, RemoteProtocolError, OSError."""
    request = memoryview(v3.encode_request(StartTlsRequest(_TXN_ID)))
    while request:
        request = request[await transport.send([request]) :]
    received = b""
    while len(received) < _PREFIX_BYTES or len(received) < _PREFIX_BYTES + _size(received):
        data = await transport.receive()
        received += data
        if not data:
            raise OSError("the bookie closed the connection instead of answering START_TLS")
    if len(received) > _PREFIX_BYTES + _size(received):
        raise RemoteProtocolError("bytes between the answer to START_TLS and TLS")
    answer = v3.decode_response(received[_PREFIX_BYTES:])
    if not isinstance(answer, StartTlsResponse) or answer.status != OK:
        raise OSError("the bookie has no TLS: it refuses START_TLS (tlsProviderFactoryClass)")


def _size(received: bytes) -> int:
    """Raises: RemoteProtocolError."""
    size = int.from_bytes(received[:_PREFIX_BYTES], "big")
    if size > _ANSWER_BYTES_MAX:
        raise RemoteProtocolError("the answer to START_TLS is too long")
    return size
