"""Whose turns a connection uses."""

from __future__ import annotations

from broker.net.share import Share


class Connection:
    peer = "10.0.0.1:5000"

    def __init__(self):
        self.shares = []

    def use_share(self, share):
        self.shares.append(share)


def test_a_connection_belongs_to_the_tenant_it_works_for():
    connection = Connection()
    share = Share(connection)
    share.used_by("one")
    share.used_by("one")
    assert connection.shares == ["tenant one"]


def test_a_connection_of_several_tenants_has_a_share_of_its_own():
    connection = Connection()
    share = Share(connection)
    for tenant in ("one", "two", "three", "one"):
        share.used_by(tenant)
    assert connection.shares == ["tenant one", "connection 10.0.0.1:5000"]
