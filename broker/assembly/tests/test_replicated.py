"""Which clusters a broker may join."""

import pytest

from broker.assembly.parts import StartError
from broker.assembly.replicated import refuse_other_load_managers
from broker.cluster.records import BROKERS_PATH, BrokerReport, encode
from broker.peers.broker_address import BrokerAddress
from metadata.memory_store import MemoryStore

ADDRESS = BrokerAddress("pulsar://127.0.0.1:6650", "http://127.0.0.1:8080", {})
EXTENSIBLE = "org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl"


async def test_a_cluster_whose_owners_are_kept_elsewhere_is_not_joined():
    store = MemoryStore()
    record = BrokerReport(address=ADDRESS).record
    await store.put_ephemeral(f"{BROKERS_PATH}/127.0.0.1:8080", encode(record))
    await refuse_other_load_managers(store)
    other = encode(record | {"loadManagerClassName": EXTENSIBLE})
    await store.put_ephemeral(f"{BROKERS_PATH}/127.0.0.1:8081", other)
    with pytest.raises(StartError, match=r"127\.0\.0\.1:8081 .*ExtensibleLoadManagerImpl"):
        await refuse_other_load_managers(store)
