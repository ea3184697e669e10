"""The admin REST calls of the data source and the jobs, blocking; the same on Pulsar and Vela.

Everything the driver asks about topics goes through here. An answer of 404 is `NotFound`; other
refusals are `AdminError` with the server's own reason. Calls are repeated while the server cannot
be reached, so that a restart of the broker does not fail a query: each has the same effect when it
arrives twice. A broker that does not own the topic answers 307 with the address of the one that
does, which is then asked.
"""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import quote, urlsplit

from pipeline.offsets import Offset
from pipeline.plan import LedgerRow
from protocol.topic_name import PARTITION_SUFFIX, TopicName

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.client import HTTPMessage
    from typing import IO

    from pipeline.options import Connection

Json = Any
RETRY_SECONDS: Final = 0.25
STATUS_TEMPORARY_REDIRECT: Final = 307
STATUS_PERMANENT_REDIRECT: Final = 308
STATUS_CONFLICT: Final = 409
STATUS_NOT_FOUND: Final = 404


class AdminError(Exception):
    """A refusal of the admin API, or no answer at all."""


class NotFound(AdminError):
    """404: no such topic, subscription or schema."""


class Conflict(AdminError):
    """409: it exists already."""


@final
class Admin:
    """One admin URL. Holds no connection, so it can be pickled."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # ---- Topics

    def partition_count(self, topic: str) -> int:
        """0 for a topic without partitions. Raises: NotFound."""
        return int(self._get(f"{_path(topic)}/partitions")["partitions"])

    def topics_of(self, domain: str, namespace: str) -> list[str]:
        """Full names, partitions one by one."""
        return list(self._get(f"/admin/v2/{domain}/{namespace}"))

    def parts_of(self, topic: str) -> list[str]:
        """The partitions of a topic, or the topic itself when it has none.

        Raises: NotFound: the topic does not exist.
        """
        name = TopicName.parse(topic)
        count = 0 if name.is_partition else self.partition_count(topic)
        if count:
            return [f"{name.full}{PARTITION_SUFFIX}{index}" for index in range(count)]
        self.last_offset(topic)
        return [name.full]

    def last_offset(self, topic: str) -> Offset:
        """The newest entry. Raises: NotFound."""
        answer = self._get(f"{_path(topic)}/lastMessageId")
        return Offset(int(answer["ledgerId"]), int(answer["entryId"]))

    def offset_before_time(self, topic: str, time_ms: int) -> Offset:
        """The start of a range that begins with the first message published at or after a time."""
        answer = self._get(f"{_path(topic)}/messageid/{time_ms}")
        return Offset(int(answer["ledgerId"]), int(answer["entryId"]) - 1)

    def ledgers(self, topic: str) -> list[LedgerRow]:
        """Oldest first; the last one is open unless the topic is terminated."""
        return ledger_rows(self._get(f"{_path(topic)}/internalStats"))

    def internal_stats(self, topic: str, *, metadata: bool = False) -> Json:
        """PersistentTopicInternalStats."""
        return self._get(f"{_path(topic)}/internalStats" + ("?metadata=true" if metadata else ""))

    def stats(self, topic: str) -> Json:
        """TopicStats."""
        return self._get(f"{_path(topic)}/stats")

    def namespaces(self) -> list[str]:
        """`tenant/namespace` of all tenants."""
        return [
            str(namespace)
            for tenant in self._get("/admin/v2/tenants")
            for namespace in self._get(f"/admin/v2/namespaces/{quote(tenant)}")
        ]

    # ---- Schemas

    def schema(self, topic: str, version: int | None = None) -> Json | None:
        """`{version, type, data, properties}` in force or of a version; None without a schema."""
        path = _schema_path(topic)
        try:
            return self._get(path if version is None else f"{path}/{version}")
        except NotFound:
            return None

    def schema_version_count(self, topic: str) -> int:
        """How many versions of its schema a topic has; 0 without a schema."""
        try:
            return len(self._get(f"{_schema_path(topic)}s")["getSchemaResponses"])
        except NotFound:
            return 0

    def register_schema(
        self, topic: str, type_name: str, text: str, properties: Mapping[str, str] | None = None
    ) -> None:
        """An equal one keeps its version. Raises: AdminError: incompatible with the present one."""
        body = {"type": type_name, "schema": text, "properties": dict(properties or {})}
        self._repeated("POST", _schema_path(topic), body)

    # ---- Subscriptions

    def create_subscription(self, topic: str, name: str) -> bool:
        """At the earliest message; False when it exists already."""
        earliest = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
        try:
            self._repeated("PUT", _subscription(topic, name), earliest)
        except Conflict:
            return False
        return True

    def move_subscription(self, topic: str, name: str, processed: Offset) -> None:
        """Keep what comes after an offset. Raises: NotFound: no such subscription."""
        following = {
            "ledgerId": processed.ledger_id,
            "entryId": processed.entry_id + (processed.batch_index < 0),
            "partitionIndex": TopicName.parse(topic).partition_index,
        }
        self._repeated("POST", f"{_subscription(topic, name)}/resetcursor", following)

    def delete_subscription(self, topic: str, name: str) -> None:
        """Raises: NotFound."""
        self._call("DELETE", _subscription(topic, name))

    # ---- HTTP

    def _get(self, path: str) -> Json:
        return self._repeated("GET", path)

    def _repeated(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        deadline = time.monotonic() + self._connection.operation_timeout_ms / 1000
        while True:
            try:
                return self._call(method, path, body)
            except (NotFound, Conflict):
                raise
            except AdminError as error:
                if not _is_passing(error) or time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_SECONDS)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Json:
        url = self._connection.admin_url + path
        headers = {"Accept": "application/json"}
        data = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(body).encode()
        if self._connection.token:
            headers["Authorization"] = f"Bearer {self._connection.token}"
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        timeout = self._connection.operation_timeout_ms / 1000
        redirects = _SameCallElsewhere()
        handlers: list[urllib.request.BaseHandler] = [redirects]
        if url.startswith("https"):
            handlers.append(urllib.request.HTTPSHandler(context=_tls(self._connection)))
        opener = urllib.request.build_opener(*handlers)
        try:
            with opener.open(request, timeout=timeout) as answer:
                content = answer.read()
        except urllib.error.HTTPError as refusal:
            raise _error(refusal, f"{method} {path}") from refusal
        except (OSError, HTTPException) as error:
            if redirects.owner_url:
                raise AdminError(
                    f"{redirects.owner_url} does not answer ({error}): "
                    f"{self._connection.admin_url} names it as the owner of the topic; can its "
                    "advertised address be reached from here?"
                ) from error
            raise AdminError(
                f"{self._connection.admin_url} does not answer ({error}): is admin.url right and "
                "the broker running?"
            ) from error
        return json.loads(content) if content else None


@final
class _SameCallElsewhere(urllib.request.HTTPRedirectHandler):
    """Follows 307 and 308 with the method, the body and the headers of the call (RFC 9110, 15.4.8).

    The base class does that for GET only. It bounds the hops.
    """

    def __init__(self) -> None:
        self.owner_url = ""
        """Scheme and address of who was asked last; empty before the first hop."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        target = urlsplit(newurl)
        self.owner_url = f"{target.scheme}://{target.netloc}"
        if code not in (STATUS_TEMPORARY_REDIRECT, STATUS_PERMANENT_REDIRECT):
            return super().redirect_request(req, fp, code, msg, headers, newurl)
        return urllib.request.Request(
            newurl, data=req.data, headers=req.headers, method=req.get_method()
        )


def ledger_rows(internal_stats: Json) -> list[LedgerRow]:
    """The ledgers in PersistentTopicInternalStats, whose newest row carries no numbers itself."""
    given = internal_stats["ledgers"]
    open_too = internal_stats["state"] != "Terminated"
    rows = []
    for row in given:
        newest = open_too and row is given[-1]
        entries = internal_stats["currentLedgerEntries"] if newest else row["entries"]
        size_bytes = internal_stats["currentLedgerSize"] if newest else row["size"]
        rows.append(LedgerRow(int(row["ledgerId"]), int(entries), int(size_bytes), not newest))
    return rows


def _path(topic: str) -> str:
    return f"/admin/v2/{_quoted(topic)}"


def _quoted(topic: str) -> str:
    name = TopicName.parse(topic)
    return f"{name.domain}/{name.namespace_name}/{quote(name.local_name, safe='')}"


def _schema_path(topic: str) -> str:
    name = TopicName.parse(topic).partitioned_base
    local_name = quote(name.local_name, safe="")
    return f"/admin/v2/schemas/{name.namespace_name}/{local_name}/schema"


def _subscription(topic: str, name: str) -> str:
    # The server decodes the segment twice.
    return f"{_path(topic)}/subscription/{quote(quote(name, safe=''), safe='')}"


def _tls(connection: Connection) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=connection.tls_trust_certs_file or None)
    if connection.tls_allow_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _error(refusal: urllib.error.HTTPError, what: str) -> AdminError:
    try:
        text = refusal.read().decode(errors="replace")
    except (OSError, HTTPException):
        text = refusal.reason
    try:
        reason = json.loads(text)["reason"]
    except (ValueError, KeyError, TypeError):
        reason = text[:200]
    message = f"{what}: {refusal.code} {reason}"
    kinds = {STATUS_NOT_FOUND: NotFound, STATUS_CONFLICT: Conflict}
    return kinds.get(refusal.code, AdminError)(message)


def _is_passing(error: AdminError) -> bool:
    """Whether asking again may help: the server is restarting, or the topic is moving."""
    cause = error.__cause__
    if isinstance(cause, urllib.error.HTTPError):
        return cause.code in (STATUS_TEMPORARY_REDIRECT, 500, 502, 503, 504)
    return True
