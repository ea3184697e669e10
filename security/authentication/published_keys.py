"""The keys that issuers publish, fetched when they are needed and kept for a while.

Bounds: `issuers_max` issuers are kept, the one used longest ago goes first. One fetch per issuer is
under way at a time, and all that need it wait for it. An unknown key id makes the keys be fetched
again, at most every `key_miss_seconds`: so wrong tokens do not each cause a request to the issuer.
An issuer that fails is asked again after a pause. Keys older than `refresh_seconds` are fetched
again while the old ones still count; those older than `expire_seconds` count no more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

import structlog
import trio

from security.authentication.identity import AuthenticationFailed, Flaw
from security.authentication.key_sets import discovery_url, keys_of, keys_url_of

if TYPE_CHECKING:
    from security.authentication.signatures import VerificationKey

log = structlog.get_logger()

DOCUMENT_BYTES_MAX: Final = 256 * 1024
FAILURE_PAUSE_SECONDS: Final = 5.0

Fetch = Callable[[str], Awaitable[bytes]]
"""The document at a URL, of at most DOCUMENT_BYTES_MAX. Raises: AuthenticationFailed."""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """How long keys are kept; times in seconds."""

    issuers_max: int
    refresh_seconds: float
    expire_seconds: float
    key_miss_seconds: float


@final
@dataclass(slots=True)
class _Issuer:
    lock: trio.Lock = field(default_factory=trio.Lock)
    keys: Mapping[str, VerificationKey] = field(default_factory=dict)
    fetched_at: float = float("-inf")
    tried_at: float = float("-inf")


@final
class PublishedKeys:
    """The keys of all issuers. The caller has checked that the issuer is allowed."""

    def __init__(self, fetch: Fetch, rules: CacheRules, now: Callable[[], float]) -> None:
        """`now`: seconds on a monotonic scale, so that no change of the wall clock keeps keys for
        longer, or keeps an issuer from being asked."""
        self._fetch = fetch
        self._rules = rules
        self._now = now
        self._issuers: dict[str, _Issuer] = {}

    async def key_of(self, issuer: str, key_id: str) -> VerificationKey:
        """Raises: AuthenticationFailed: there is none, or the issuer cannot be asked."""
        known = self._issuers.pop(issuer, None) or _Issuer()
        self._issuers[issuer] = known
        if len(self._issuers) > self._rules.issuers_max:
            del self._issuers[next(iter(self._issuers))]
        if self._must_fetch(known, key_id):
            async with known.lock:
                if self._must_fetch(known, key_id):  # no other task has while this one waited
                    await self._fetch_keys(issuer, known)
        found = known.keys.get(key_id)
        if found is None or self._age(known) > self._rules.expire_seconds:
            raise AuthenticationFailed(
                f"{issuer} has no key with the id of the token", Flaw.UNKNOWN_KEY
            )
        return found

    def _age(self, known: _Issuer) -> float:
        return self._now() - known.fetched_at

    def _must_fetch(self, known: _Issuer, key_id: str) -> bool:
        age, rules = self._age(known), self._rules
        has_failed = known.tried_at > known.fetched_at
        if has_failed and self._now() - known.tried_at < FAILURE_PAUSE_SECONDS:
            return False
        if key_id in known.keys:
            return age > rules.refresh_seconds
        return age > rules.key_miss_seconds

    async def _fetch_keys(self, issuer: str, known: _Issuer) -> None:
        try:
            url = keys_url_of(await self._fetch(discovery_url(issuer)), issuer)
            known.keys = keys_of(await self._fetch(url))
            known.fetched_at = known.tried_at = self._now()
        except AuthenticationFailed as error:
            known.tried_at = self._now()
            log.warning("the keys of an issuer cannot be fetched", issuer=issuer, reason=str(error))
