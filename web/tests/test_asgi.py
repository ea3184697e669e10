"""Bodies of requests that are wanted whole."""

import pytest

from web.asgi import BODY_BYTES_MAX, read_body
from web.errors import RequestRefused


async def test_a_huge_body_is_refused_while_it_is_read():
    async def receive():
        return {"type": "http.request", "body": bytes(BODY_BYTES_MAX // 2 + 1), "more_body": True}

    with pytest.raises(RequestRefused) as caught:
        await read_body(receive)
    assert caught.value.status == 413
