"""The Prometheus text of one broker (being filled)."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from bookie.bookie import Bookie
    from broker.config import BrokerConfig
    from broker.service import BrokerService


@final
class MetricsSource:
    """Reads the broker's state when asked."""

    def __init__(
        self, config: BrokerConfig, service: BrokerService, bookie: Bookie | None, version: str
    ) -> None:
        self._config = config
        self._service = service
        self._bookie = bookie
        self._version = version

    def exposition(self) -> str:
        """The whole page."""
        return f'pulsar_version_info{{version="{self._version}"}} 1\n'
