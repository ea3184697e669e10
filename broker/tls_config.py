"""TLS of a broker's two ports, from its configuration. Pure: no file is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from security.tls_rules import TlsRules, violated_rule

if TYPE_CHECKING:
    from broker.config import BrokerConfig


def binary_tls(config: BrokerConfig) -> TlsRules:
    """Of brokerServicePortTls."""
    return _rules(config, config.tlsProtocols, config.tlsCiphers, "")


def web_tls(config: BrokerConfig) -> TlsRules:
    """Of webServicePortTls: the same files, other protocols and ciphers."""
    return _rules(config, config.webServiceTlsProtocols, config.webServiceTlsCiphers, "webService")


def _rules(
    config: BrokerConfig, protocols: tuple[str, ...], ciphers: tuple[str, ...], prefix: str
) -> TlsRules:
    return TlsRules(
        certificate_path=config.tlsCertificateFilePath,
        key_path=config.tlsKeyFilePath,
        trusted_path=config.tlsTrustCertsFilePath,
        requires_client_certificate=config.tlsRequireTrustedClientCertOnConnect,
        accepts_untrusted=config.tlsAllowInsecureConnection,
        protocols=protocols,
        ciphers=ciphers,
        protocols_key=f"{prefix}TlsProtocols" if prefix else "tlsProtocols",
        ciphers_key=f"{prefix}TlsCiphers" if prefix else "tlsCiphers",
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
