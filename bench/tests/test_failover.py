"""The measurement of a failover, small: every topic of a killed broker is served again in time."""

from bench.failover import MARGIN_SECONDS, SESSION_SECONDS, measure

TOPICS = 100


def test_all_topics_of_a_killed_broker_are_served_again(tmp_path):
    served = measure(tmp_path, TOPICS, brokers=2, bookies=1)

    assert not served.refusals
    assert len(served.seconds) == TOPICS
    assert 0 < len(served.moved) < TOPICS
    assert max(served.seconds.values()) <= SESSION_SECONDS + MARGIN_SECONDS
