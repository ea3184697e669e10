"""Connections that speak the binary protocol as those of stock clients do: requests are answered or
given up, owners are looked up, and redirects are followed."""

from __future__ import annotations

import trio

from protocol import client as c
from protocol import pulsar_api_pb2 as pb
from protocol.errors import RemoteProtocolError

T = pb.BaseCommand
REQUEST_SECONDS = 5.0
PING_SECONDS = 2.0


class Unavailable(Exception):
    """The broker does not do it now; the client tries again."""


class Link:
    """One connection to a broker."""

    def __init__(self, socket, silent_seconds_max):
        self._socket = socket
        self._silent_seconds_max = silent_seconds_max
        self._client = c.Client()
        self._answers = {}
        self._attached = {}
        self._ids = 0
        self._heard_at = trio.current_time()
        self.is_lost = False

    def rid(self):
        return self._client.next_request_id()

    def attach(self, owner):
        """A number for a producer or consumer, which gets `on_command` and `on_lost`."""
        self._ids += 1
        self._attached[self._ids] = owner
        return self._ids

    def detach(self, number):
        self._attached.pop(number, None)

    def send(self, *frames):
        """Without waiting."""
        if self.is_lost:
            return
        data = b"".join(frames)
        try:
            if self._socket.send_nowait([data]) != len(data):
                self.close()
        except trio.BrokenResourceError:
            self.close()

    async def request(self, request_id, frame):
        """The answer. Raises: Unavailable."""
        answer = self._answers[request_id] = [trio.Event(), None]
        self.send(frame)
        with trio.move_on_after(REQUEST_SECONDS):
            await answer[0].wait()
        self._answers.pop(request_id, None)
        if answer[1] is None:
            raise Unavailable("no answer")
        command, content = answer[1]
        if command.type == T.ERROR:
            raise Unavailable(f"{content.error}: {content.message}")
        return content

    async def run(self):
        """Until it is lost."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._ping)
                await self._receive()
                nursery.cancel_scope.cancel()
        finally:
            self.close()

    async def _ping(self):
        while not self.is_lost:
            await trio.sleep(PING_SECONDS)
            if trio.current_time() - self._heard_at > self._silent_seconds_max:
                self.close()
            self.send(c.ping())

    async def _receive(self):
        try:
            while data := await self._socket.receive():
                self._heard_at = trio.current_time()
                for command, payload in self._client.receive(data):
                    self._take(command, payload)
        except (trio.BrokenResourceError, RemoteProtocolError) as error:
            if isinstance(error, RemoteProtocolError):
                raise

    def _take(self, command, payload):
        kind = command.type
        if kind == T.PING:
            self.send(c.pong())
            return
        if kind == T.PONG:
            return
        content = getattr(command, _FIELDS[kind])
        if kind in _TO_OWNERS:
            number = getattr(content, _TO_OWNERS[kind])
            owner = self._attached.get(number)
            if owner is not None:
                owner.on_command(self, number, kind, content, payload)
            return
        request_id = getattr(content, "request_id", 0)
        if kind == T.CONNECTED:
            request_id = -1
        answer = self._answers.get(request_id)
        if answer is not None:
            answer[1] = (command, content)
            answer[0].set()

    async def handshake(self):
        """Raises: Unavailable."""
        await self.request(-1, c.connect())

    def close(self):
        """End it. Its producers and consumers hear of it."""
        if self.is_lost:
            return
        self.is_lost = True
        self._socket.close()
        for answer in self._answers.values():
            answer[0].set()
        attached, self._attached = self._attached, {}
        for number, owner in attached.items():
            owner.on_lost(self, number)


_TO_OWNERS = {
    T.SEND_RECEIPT: "producer_id",
    T.SEND_ERROR: "producer_id",
    T.CLOSE_PRODUCER: "producer_id",
    T.MESSAGE: "consumer_id",
    T.CLOSE_CONSUMER: "consumer_id",
    T.ACTIVE_CONSUMER_CHANGE: "consumer_id",
    T.REACHED_END_OF_TOPIC: "consumer_id",
}
_FIELDS = {
    T.CONNECTED: "connected",
    T.SUCCESS: "success",
    T.ERROR: "error",
    T.LOOKUP_RESPONSE: "lookupTopicResponse",
    T.PRODUCER_SUCCESS: "producer_success",
    T.SEND_RECEIPT: "send_receipt",
    T.SEND_ERROR: "send_error",
    T.CLOSE_PRODUCER: "close_producer",
    T.MESSAGE: "message",
    T.CLOSE_CONSUMER: "close_consumer",
    T.ACTIVE_CONSUMER_CHANGE: "active_consumer_change",
    T.REACHED_END_OF_TOPIC: "reachedEndOfTopic",
}


class ClientProcess:
    """The connections of one process with clients."""

    def __init__(self, cluster, name, patience):
        """`patience`: seconds after which a broker that says nothing is left."""
        self.host = cluster.network.host(name)
        self.patience = patience
        self.rng = cluster.world.chance(f"client {name}")
        self._cluster = cluster
        self._links = {}
        self._opening = {}

    async def link_to(self, url):
        """A connection to a broker. Raises: Unavailable."""
        while url in self._opening:
            await self._opening[url].wait()
        link = self._links.get(url)
        if link is not None and not link.is_lost:
            return link
        opening = self._opening[url] = trio.Event()
        try:
            host, _, port = url.removeprefix("pulsar://").partition(":")
            socket = None
            with trio.move_on_after(REQUEST_SECONDS):
                try:
                    socket = await self._cluster.network.connect(self.host, host, int(port))
                except OSError as error:
                    raise Unavailable(str(error)) from None
            if socket is None:
                raise Unavailable("no connection in time")
            link = Link(socket, self.patience)
            self._cluster.nursery.start_soon(link.run)
            try:
                await link.handshake()
            except Unavailable:
                link.close()
                raise
            self._links[url] = link
            return link
        finally:
            del self._opening[url]
            opening.set()

    async def find(self, topic):
        """A connection to the broker that serves the topic. Raises: Unavailable."""
        url = f"pulsar://{self.rng.choice(self._cluster.broker_names)}:6650"
        authoritative = False
        for _hop in range(6):
            link = await self.link_to(url)
            number = link.rid()
            frame = c.lookup(topic, number, authoritative=authoritative)
            answer = await link.request(number, frame)
            if answer.response == pb.CommandLookupTopicResponse.Failed:
                raise Unavailable(answer.message)
            url, authoritative = answer.brokerServiceUrl, answer.authoritative
            if answer.response == pb.CommandLookupTopicResponse.Connect:
                return await self.link_to(url)
        raise Unavailable("sent around in circles")

    async def wait_before_retry(self):
        await trio.sleep(self.rng.choice((0.05, 0.1, 0.2, 0.5)))
