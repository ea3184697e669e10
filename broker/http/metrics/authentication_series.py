"""How often credentials were accepted and refused, under Pulsar's names and labels."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from security.authentication.counts import MINUTES_LEFT
from web.prometheus import label_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from security.authentication.counts import AuthenticationCounts
    from web.prometheus import Page


def add_authentication_series(
    page: Page, counts: AuthenticationCounts, cluster: Mapping[str, str]
) -> None:
    """All of them. `cluster`: the label that every series of the broker has."""
    for (provider, method), count in sorted(counts.succeeded.items()):
        labels = {**cluster, "provider_name": provider, "auth_method": method}
        page.add(
            "pulsar_authentication_success_total",
            "counter",
            "Credentials that were accepted",
            label_text(labels),
            count,
        )
    for (provider, method, reason), count in sorted(counts.failed.items()):
        labels = {**cluster, "provider_name": provider, "auth_method": method, "reason": reason}
        page.add(
            "pulsar_authentication_failures_total",
            "counter",
            "Credentials that were refused",
            label_text(labels),
            count,
        )
    if counts.watches_expiry:
        _add_expiry(page, counts, cluster)


def _add_expiry(page: Page, counts: AuthenticationCounts, cluster: Mapping[str, str]) -> None:
    labels = label_text(cluster)
    page.add(
        "pulsar_expired_token_total",
        "counter",
        "Tokens that were shown after their end",
        labels,
        counts.expired,
    )
    name = "pulsar_expiring_token_minutes"
    lines = page.family(name, "histogram", "Minutes until the end of tokens that were accepted")
    limits = [*map(str, MINUTES_LEFT), "+Inf"]
    for limit, count in zip(limits, accumulate(counts.minutes_left), strict=True):
        lines.append(f"{name}_bucket{label_text({**cluster, 'le': limit})} {count}")
    lines.append(f"{name}_count{labels} {sum(counts.minutes_left)}")
    lines.append(f"{name}_sum{labels} {counts.minutes_left_sum}")
