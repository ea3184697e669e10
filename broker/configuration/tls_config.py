"""TLS of a broker's two ports, from its configuration. Pure: no file is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from security.tls_rules import TlsRules, violated_rule
from security.tls_suites import TlsChoice

if TYPE_CHECKING:
    from broker.ground.config import BrokerConfig


def binary_tls(config: BrokerConfig) -> TlsRules:
    """The rules of brokerServicePortTls."""
    return _rules(config, TlsChoice(protocols=config.tlsProtocols, ciphers=config.tlsCiphers))


def web_tls(config: BrokerConfig) -> TlsRules:
    """The rules of webServicePortTls: the same files, other protocols and ciphers."""
    choice = TlsChoice(
        protocols=config.webServiceTlsProtocols,
        ciphers=config.webServiceTlsCiphers,
        protocols_key="webServiceTlsProtocols",
        ciphers_key="webServiceTlsCiphers",
    )
    return _rules(config, choice)


def _rules(config: BrokerConfig, choice: TlsChoice) -> TlsRules:
    return TlsRules(
        certificate_path=config.tlsCertificateFilePath,
        key_path=config.tlsKeyFilePath,
        trusted_path=config.tlsTrustCertsFilePath,
        requires_client_certificate=config.tlsRequireTrustedClientCertOnConnect,
        accepts_untrusted=config.tlsAllowInsecureConnection,
        choice=choice,
        check_seconds=float(config.tlsCertRefreshCheckDurationSec),
    )


def violated_port_rule(config: BrokerConfig) -> str:
    """The sentence about ports, and what TLS needs on them; empty: nothing is wrong."""
    for plain, tls in (
        ("brokerServicePort", "brokerServicePortTls"),
        ("webServicePort", "webServicePortTls"),
    ):
        if getattr(config, plain) is None and getattr(config, tls) is None:
            return f"{plain} and {tls} are both off: set one of them"
    reasons = [
        violated_rule(rules(config))
        for port, rules in (
            (config.brokerServicePortTls, binary_tls),
            (config.webServicePortTls, web_tls),
        )
        if port is not None
    ]
    return next(filter(None, reasons), "")
