"""For the tests of TLS over a transport."""

from __future__ import annotations

import ssl

import pytest

from security.testing.certificates import Authority
from security.tls import TlsContexts
from security.tls_rules import TlsRules


@pytest.fixture(scope="module")
def contexts(tmp_path_factory):
    """Of the server and of a client with a certificate."""
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority("root")
    certificate, key = authority.issue("localhost", "localhost").write(directory, "server")
    rules = TlsRules(
        certificate_path=certificate, key_path=key, trusted_path=authority.write(directory)
    )
    client = ssl.create_default_context(cadata=authority.pem.decode())
    credentials = authority.issue("the-role")
    client.load_cert_chain(*credentials.write(directory, "client"))
    return TlsContexts(rules).current, client, credentials
