"""Makes authorization decisions from the stored facts. One per broker; none if authorization is
off.

The facts are in memory while they are in use, so that a decision needs no waiting. The first
question about a tenant or a namespace reads its facts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from broker.tenancy.authorization.decision import Decision, Facts, Rules, Scope, decide
from broker.tenancy.authorization.operations import Right
from protocol.errors import AuthorizationError
from security.caller import Caller

if TYPE_CHECKING:
    from collections.abc import Callable

    from broker.ground.config import BrokerConfig
    from broker.tenancy.authorization.tenant_admins import TenantAdmins
    from broker.tenancy.namespaces.namespaces import Namespaces
    from protocol.topic_name import TopicName


def rules_from(config: BrokerConfig) -> Rules:
    """The rules of a configuration."""
    return Rules(
        super_users=frozenset(config.superUserRoles),
        proxies=frozenset(config.proxyRoles),
        has_wildcards=config.authorizationAllowWildcardsMatching,
    )


@final
class Authorizer:
    """See the module docstring."""

    def __init__(self, rules: Rules, namespaces: Namespaces, admins: TenantAdmins) -> None:
        self.rules = rules
        self._namespaces = namespaces
        self._admins = admins
        self._watchers: list[Callable[[], None]] = []

    def use(self, rules: Rules) -> None:
        """Other rules are in force from now on."""
        if rules != self.rules:
            self.rules = rules
            for tell in self._watchers:
                tell()

    def watch_rules(self, tell: Callable[[], None]) -> None:
        """Call when others are in force."""
        self._watchers.append(tell)

    def decide_now(self, caller: Caller, right: Right, scope: Scope) -> Decision | None:
        """The decision, if it needs nothing that is not in memory; None: call `decide`."""
        admins = self._admins.in_memory(scope.tenant)
        namespace = self._namespaces.current(scope.namespace_name)
        grants = None if namespace is None else namespace.policies.grants
        decision = decide(caller, right, scope, Facts(admins, grants), self.rules)
        # Unknown facts count as absent, and additional facts never allow less.
        is_final = admins is not None and (namespace is not None or not scope.namespace_name)
        return decision if is_final or decision.is_allowed else None

    async def decide(self, caller: Caller, right: Right, scope: Scope) -> Decision:
        """The decision. Raises: MetadataError: what is stored cannot be read."""
        decision = self.decide_now(caller, right, scope)
        if decision is not None:
            return decision
        admins = await self._admins.find(scope.tenant)
        namespace = await self._namespaces.find(scope.namespace_name)
        grants = None if namespace is None else namespace.policies.grants
        return decide(caller, right, scope, Facts(admins, grants), self.rules)

    async def check_shadow(self, shadow: TopicName, source: TopicName) -> None:
        """The messages of the source go to whom the administrators of the shadow admit. So one of
        these has to be allowed to consume from it, unless they administer both.

        Raises: AuthorizationError: none is. MetadataError.
        """
        if shadow.tenant == source.tenant:
            return
        scope = Scope(source.tenant, source.namespace_name, source)
        for role in sorted(await self._admins.find(shadow.tenant) or ()):
            if (await self.decide(Caller(role), Right.CONSUME, scope)).is_allowed:
                return
        raise AuthorizationError(
            f"{shadow.full} cannot be a shadow of {source.full}: no role that administers the "
            f"tenant {shadow.tenant} may consume from it. Grant that, or remove the property "
            "PULSAR.SHADOW_SOURCE"
        )
