"""The ASGI application over the route table. `broker.http.front` loads it."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Final, final

import structlog

from broker.ground.refusal import Refusal
from broker.http.authorization import check, scope_of
from broker.http.context import AdminRequest
from broker.http.errors import status_and_reason
from broker.http.front import STARTING
from broker.http.redirects import Redirect, send_to_owner
from broker.http.streaming import Streamed, encoded, is_large, json_pieces
from security.authentication.identity import AuthenticationFailed
from security.caller import UNAUTHENTICATED, Caller
from web.asgi import read_body
from web.responses import Response

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig
    from broker.http.context import AdminContext
    from broker.http.router import Router
    from security.authentication.service import Authentication
    from web.asgi import Application, Receive, Scope, Send
    from web.callers import CallerRules

log = structlog.get_logger()

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_JSON: Final = "application/json"
_ORIGINAL_PRINCIPAL: Final = "x-original-principal"
_STATUS: Final = "/status.html"
_METRICS: Final = "/metrics"


@final
class AdminApplication:
    """ASGI. `context` is None until the broker is ready."""

    def __init__(
        self,
        router: Router,
        callers: CallerRules,
        authentication: Authentication | None = None,
        open_paths: frozenset[str] = frozenset(),
    ) -> None:
        """`authentication`: None: every caller is served; `open_paths`: routes that serve every
        caller in any case."""
        self._router = router
        self._callers = callers
        self._authentication = authentication
        self._open_paths = open_paths
        self.context: AdminContext | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        response = await self._answer(scope, receive)
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Application:
        headers = {
            key.decode("latin-1"): value.decode("latin-1") for key, value in scope["headers"]
        }
        method: str = scope["method"]
        try:
            server = scope.get("server")
            self._callers.check(method, headers, server[0] if server is not None else "")
            if headers.get("upgrade", "").lower() == "websocket":
                raise Refusal(501, "WebSocket is not supported; connect to the brokerServicePort")
            return await self._handled(scope, receive, method, headers)
        except Redirect as redirect:
            return Response(status=307, headers={"Location": redirect.url})
        except Exception as error:  # the only place where errors become answers
            return _error(*status_and_reason(error))

    async def _handled(
        self, scope: Scope, receive: Receive, method: str, headers: dict[str, str]
    ) -> Application:
        raw_path: bytes = scope.get("raw_path") or scope["path"].encode()
        raw_path = raw_path.partition(b"?")[0]
        route, names, known = self._router.find(raw_path, "GET" if method == "HEAD" else method)
        context = self.context
        if context is None:
            return _error(503, STARTING)
        caller = UNAUTHENTICATED
        if self._authentication is not None and (
            route is None or route.path not in self._open_paths
        ):
            # Before the path is looked at: a caller without an identity must not learn whether it
            # exists.
            try:
                caller = await _caller(self._authentication, scope, headers)
            except AuthenticationFailed as error:
                return _unauthenticated(scope, error)
        if route is None:
            if known:
                return _error(405, f"{method} is not allowed on {scope['path']}")
            return _error(404, f"There is nothing at {scope['path']}")
        if any(map(_CONTROL.search, names.values())):
            raise Refusal(400, "A name in the path has a control character")
        request = AdminRequest(
            context,
            method,
            scope["path"],
            raw_path.decode("latin-1"),
            scope["query_string"],
            names,
            headers,
            lambda: read_body(receive),
            caller,
            scope.get("scheme", "http"),
        )
        if context.decisions is not None:
            for operation in route.asks:
                await check(request, operation, scope_of(request, operation))
        if route.at_owner:
            await send_to_owner(request)
        if route.by_parts is not None and context.cluster is not None:
            count = await context.namespaces.partitions_of(request.topic)
            if count:
                return _as_response(await route.by_parts(request, count))
        return _as_response(await route.handler(request))


def open_paths(config: BrokerConfig) -> frozenset[str]:
    """The routes that serve every caller, as in Pulsar."""
    return frozenset({_STATUS} if config.authenticateMetricsEndpoint else {_STATUS, _METRICS})


async def _caller(authentication: Authentication, scope: Scope, headers: dict[str, str]) -> Caller:
    """Raises: AuthenticationFailed."""
    chain = scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", ())
    certificate = ssl.PEM_cert_to_DER_cert(chain[0]) if chain else None
    identity = await authentication.of_request(headers, certificate)
    return Caller(identity.role, headers.get(_ORIGINAL_PRINCIPAL))


def _unauthenticated(scope: Scope, error: AuthenticationFailed) -> Response:
    client = scope.get("client")
    peer = "" if client is None else f"{client[0]}:{client[1]}"
    log.warning("HTTP request refused", peer=peer, reason=f"not authenticated: {error}")
    text = "Authentication required"
    answer = {"reason": text, "message": text, "url": scope["path"], "status": "401"}
    headers = {"Cache-Control": "must-revalidate,no-cache,no-store"}
    return Response(encoded(answer), status=401, headers=headers, media_type=_JSON)


def _as_response(answer: object) -> Application:
    if isinstance(answer, Response | Streamed):
        return answer
    if answer is None:
        return Response(status=204)
    if isinstance(answer, str):
        return Response(answer, media_type=_JSON if answer else None)
    if is_large(answer):
        return Streamed(json_pieces(answer))
    return Response(encoded(answer), media_type=_JSON)


def _error(status: int, reason: str) -> Response:
    return Response(encoded({"reason": reason}), status=status, media_type=_JSON)
