"""Where `vela standalone` keeps its data if nothing is said. Apart, so that the command line loads
nothing of the broker before it knows what is wanted."""

from __future__ import annotations

from typing import Final

DEFAULT_DATA_DIRECTORY: Final = "data/standalone"
