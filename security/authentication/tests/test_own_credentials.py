"""The plugins of clients that brokers use among themselves, with the forms of their parameters."""

from __future__ import annotations

import base64

import pytest

from security.authentication.identity import CredentialUnreadable, ProviderRefused
from security.authentication.own_credentials import own_credentials

PACKAGE = "org.apache.pulsar.client.impl.auth."
TOKEN = f"{PACKAGE}AuthenticationToken"
TLS = f"{PACKAGE}AuthenticationTls"
BASIC = f"{PACKAGE}AuthenticationBasic"


@pytest.mark.parametrize("text", ["token:a.b.c", "a.b.c", '{"token": "a.b.c"}', " token:a.b.c\n"])
def test_a_token_is_given_as_clients_of_pulsar_give_it(text):
    credentials = own_credentials(TOKEN, text)
    assert (credentials.method, credentials.read()) == ("token", b"a.b.c")
    assert credentials.headers(b"a.b.c") == (
        ("Authorization", "Bearer a.b.c"),
        ("x-pulsar-auth-method-name", "token"),
    )
    assert "a.b.c" not in repr(credentials)


def test_the_file_of_a_token_is_read_each_time(tmp_path):
    path = tmp_path / "my token"
    path.write_text("first\n")
    credentials = own_credentials(TOKEN, f"file://{tmp_path}/my%20token")
    assert credentials.read() == b"first"
    path.write_text("second")
    assert credentials.read() == b"second"
    path.write_text(" \n")
    with pytest.raises(CredentialUnreadable, match="my token holds no token"):
        credentials.read()
    path.unlink()
    with pytest.raises(CredentialUnreadable, match="my token: No such file"):
        credentials.read()


def test_a_user_has_a_password():
    credentials = own_credentials(BASIC, '{"userId": "ann", "password": "open:sesame"}')
    assert (credentials.method, credentials.read()) == ("basic", b"ann:open:sesame")
    [(name, value), _method] = credentials.headers(credentials.read())
    assert name == "Authorization"
    assert base64.b64decode(value.removeprefix("Basic ")) == b"ann:open:sesame"
    assert "sesame" not in repr(credentials)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("tlsCertFile:/a/c.pem,tlsKeyFile:/a/k.pem", ("/a/c.pem", "/a/k.pem")),
        ('{"tlsCertFile": "/c", "tlsKeyFile": "/k"}', ("/c", "/k")),
        ("", ("", "")),
    ],
)
def test_a_certificate_is_the_credential_of_its_connection(text, paths):
    credentials = own_credentials(TLS, text)
    assert (credentials.certificate_path, credentials.key_path) == paths
    assert (credentials.method, credentials.read()) == ("tls", b"")


def test_without_a_plugin_nothing_is_shown():
    assert own_credentials("", "") is None


@pytest.mark.parametrize(
    ("plugin", "parameters", "line"),
    [
        ("", "token:secret", "brokerClientAuthenticationParameters needs brokerClientAuth"),
        ("org.example.Own", "", "org.example.Own is not supported; Vela has org.apache"),
        (f"{PACKAGE}oauth2.AuthenticationOAuth2", "{}", "OAuth2 is not supported"),
        (TOKEN, "", "has no token: give token:..., or file:///path"),
        (TOKEN, "file:///no/such", "cannot read the token in /no/such: No such file"),
        (TOKEN, "file:///dev/zero", "cannot read the token in /dev/zero: it is not a regular file"),
        (TOKEN, '{"tokn": "secret"}', "has no token"),
        (TOKEN, "{secret", "is no JSON object"),
        (TOKEN, '{"token": ["secret"]}', "is no JSON object of texts"),
        (BASIC, "ann:secret", "is no JSON object"),
        (BASIC, '{"password": "secret"}', "has no user"),
        (TLS, "tlsCertFile:/secret", "must name both files"),
        (TLS, "certificate:/secret", "must name both files"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line_without_the_credential(
    plugin, parameters, line
):
    with pytest.raises(ProviderRefused, match=line) as refused:
        own_credentials(plugin, parameters)
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value)
