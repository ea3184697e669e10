"""The credentials of a broker of a cluster, and whether the other brokers will accept them.

The brokers of a cluster have the same configuration, so this broker verifies its own credentials
with the result that the others will get. A failure is logged and does not stop the broker: an
expired credential can be replaced while the broker runs, and super users can be changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import structlog

from broker.assembly.parts import StartError
from broker.peers.broker_client import BrokerClient
from security.authentication.identity import (
    TLS_METHOD,
    AuthenticationFailed,
    CredentialUnreadable,
    Evidence,
    ProviderRefused,
)
from security.authentication.own_credentials import (
    PARAMETERS_KEY,
    own_credentials,
)
from security.authentication.service import NO_METHOD
from security.tls_client import TlsClientContexts
from security.tls_rules import TlsKeyNames
from security.tls_suites import UnusableTls

if TYPE_CHECKING:
    from broker.assembly.cluster_config import ClusterBrokerConfig
    from broker.ground.config import BrokerConfig
    from security.authentication.own_credentials import OwnCredentials
    from security.authentication.service import Authentication

log = structlog.get_logger()


def broker_client_of(config: ClusterBrokerConfig) -> BrokerClient:
    """How other brokers are reached. Raises: StartError: the keys name what cannot be used."""
    try:
        credentials = own_credentials(
            config.brokerClientAuthenticationPlugin, config.brokerClientAuthenticationParameters
        )
        return BrokerClient(_tls(config, credentials), credentials)
    except (ProviderRefused, UnusableTls) as error:
        raise StartError(str(error)) from None


def _tls(
    config: ClusterBrokerConfig, credentials: OwnCredentials | None
) -> TlsClientContexts | None:
    """None: without. Raises: UnusableTls."""
    if not config.brokerClientTlsEnabled:
        return None
    rules = config.broker_client()
    if credentials is not None and credentials.certificate_path:
        names = TlsKeyNames(
            f"{PARAMETERS_KEY}: tlsCertFile", f"{PARAMETERS_KEY}: tlsKeyFile", rules.names.trusted
        )
        rules = rules.showing(credentials.certificate_path, credentials.key_path, names)
    return TlsClientContexts(rules)


@final
class OwnRole:
    """The role that this broker has among the others."""

    def __init__(
        self, client: BrokerClient, authentication: Authentication | None, config: BrokerConfig
    ) -> None:
        """`authentication` None: no caller has a role."""
        self._client = client
        self._authentication = authentication
        self._config = config
        self._role: str | None = None
        self.problem = ""
        """Why the others will refuse what this broker asks; empty: they will not."""

    async def find(self) -> None:
        """Ask the providers of this broker. Never raises."""
        if self._authentication is None:
            return
        client = self._client
        try:
            method, data = await client.shown()
            certificate = client.certificate() if method == TLS_METHOD else None
            evidence = Evidence(data, certificate)
            found = await self._authentication.of_connection(method or NO_METHOD, evidence)
        except (AuthenticationFailed, CredentialUnreadable) as error:
            self._tell(
                "this broker would not accept its own credentials, and the others will not: "
                f"{error}"
            )
            return
        self._role = found.role
        self.use(self._config)

    def use(self, config: BrokerConfig) -> None:
        """This configuration is in force now."""
        self._config = config
        if self._role is None:
            return
        is_allowed = not config.authorizationEnabled or self._role in config.superUserRoles
        self._tell(
            ""
            if is_allowed
            else f"the role of this broker, {self._role!r}, is not among superUserRoles: other "
            "brokers will refuse what it asks"
        )

    def _tell(self, problem: str) -> None:
        if problem and problem != self.problem:
            log.error("credentials for other brokers", problem=problem)
        self.problem = problem
