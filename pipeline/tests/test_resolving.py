"""Addresses of bookies that options point to, as the driver reads them."""

import pytest

from pipeline.options import InvalidOption, source_options
from pipeline.resolving import resolved_source_options

BASE = {"topic": "t", "readEngine": "bookie"}


def resolved(**more):
    return resolved_source_options({**BASE, **more}, streaming=False)


def test_addresses_in_the_options_go_with_every_task():
    options = resolved(bookieAddresses="bk-0=127.0.0.1:3181")
    assert options.bookie_addresses.of("bk-0") == ("127.0.0.1", 3181)
    assert resolved().bookie_addresses.of("h:3181") == ("h", 3181)


def test_a_wrong_address_names_its_option():
    with pytest.raises(InvalidOption, match="bookieAddresses: 'bk-0=h' is not of the form"):
        source_options({**BASE, "bookieAddresses": "bk-0=h"}, streaming=False)


def test_a_store_that_cannot_be_read_names_its_option_and_the_other_one():
    with pytest.raises(InvalidOption, match=r"metadataStoreUrl: .*bookieAddresses"):
        resolved(metadataStoreUrl="rocksdb:/var/lib/pulsar/metadata")


def test_registrations_are_not_read_for_the_broker():
    options = resolved(readEngine="broker", metadataStoreUrl="rocksdb:/none")
    assert options.metadata_store_url == "rocksdb:/none"
