"""What the operator is told about a port that asks for no credentials."""

from dataclasses import replace

import pytest

from broker.configuration.start_notices import start_notices
from broker.ground.config import DEFAULT_CONFIG


@pytest.mark.parametrize(
    ("asks", "port", "count"), [(True, 3181, 1), (True, 0, 1), (True, -1, 0), (False, 3181, 0)]
)
def test_the_port_of_the_bookie_is_named_where_clients_need_credentials(asks, port, count):
    config = replace(
        DEFAULT_CONFIG, authenticationEnabled=asks, authorizationEnabled=asks, bookiePort=port
    )
    found = start_notices(config, in_memory=False)
    assert sum("does not protect bookiePort" in each for each in found) == count
