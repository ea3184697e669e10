"""The file about TLS to ZooKeeper and credentials for it."""

from __future__ import annotations

import pytest

from metadata.opening import open_store
from metadata.store import MetadataUnavailable
from metadata.zookeeper_access import OPEN, AccessRefused, read_access

DIGEST = "vela.zookeeper.digest."
SECURE = "zookeeper.client.secure=true\n"


def written(tmp_path, text):
    path = tmp_path / "zookeeper-client.conf"
    path.write_text(text)
    return str(path)


def test_without_a_file_there_is_neither():
    assert read_access("") is OPEN
    assert (OPEN.tls, OPEN.digest) == (None, "")


def test_a_user_and_a_password_perhaps_in_a_file_of_its_own(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("open:sesame\n")
    for password in ("open:sesame", f"file://{secret}"):
        text = f"{DIGEST}username=vela\n{DIGEST}password={password}\n"
        access = read_access(written(tmp_path, text))
        assert access.digest == "vela:open:sesame"
        assert "sesame" not in repr(access)


def test_tls_has_the_keys_of_zookeepers_client(tmp_path):
    text = SECURE + (
        "zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty\n"
        "zookeeper.ssl.keyStore.location=/own.pem\n"
        "zookeeper.ssl.trustStore.location=/ca\n"
        "zookeeper.ssl.trustStore.type=PEM\n"
    )
    tls = read_access(written(tmp_path, text)).tls
    assert (tls.certificate_path, tls.key_path, tls.trusted_path) == ("/own.pem", "/own.pem", "/ca")
    assert tls.verifies_host_name
    text += "zookeeper.ssl.hostnameVerification=false\n"
    assert not read_access(written(tmp_path, text)).tls.verifies_host_name


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("zookeeper.client.secur=true", "does not have the key 'zookeeper.client.secur'"),
        ("zookeeper.ssl.trustStore.location=/ca.pem", "needs zookeeper.client.secure=true"),
        ("zookeeper.client.secure=yes", "should be true or false"),
        (SECURE + "zookeeper.ssl.keyStore.location=/a.jks", "of the type JKS .*openssl pkcs12"),
        (SECURE + "zookeeper.ssl.trustStore.location=/a", "of the type JKS is not supported"),
        (f"{DIGEST}username=vela", "belong together"),
        (f"{DIGEST}password=secret", "belong together"),
        (f"{DIGEST}username=a:b\n{DIGEST}password=secret", "no colon"),
        (f"{DIGEST}username=a\n{DIGEST}password=file:///secret", "cannot read file:///secret"),
        (f"{DIGEST}username=a\n{DIGEST}password=file:///dev/zero", "it is not a regular file"),
        ("secret", "expected key=value"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(tmp_path, text, line):
    with pytest.raises(AccessRefused, match=line) as refused:
        read_access(written(tmp_path, text))
    assert "\n" not in str(refused.value)
    assert "secret" not in str(refused.value).replace("file:///secret", "")


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(AccessRefused, match="metadataStoreConfigPath: cannot read /none"):
        read_access("/none")


@pytest.mark.parametrize("url", ["memory:", "unix:/s", "rocksdb:/r"])
async def test_other_stores_have_no_such_file(url, tmp_path):
    with pytest.raises(MetadataUnavailable, match="is for ZooKeeper only"):
        await open_store(url, 1.0, written(tmp_path, ""))
