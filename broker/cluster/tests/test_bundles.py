"""Bundles, their boundaries and splits. Pure."""

from binascii import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.bundles import (
    HASH_MAX,
    Boundaries,
    Bundle,
    BundlesOfBroker,
    NotABundle,
    middle_of_range,
    middle_of_topics,
    names_within,
    overlapping,
    parse_bundle,
    topic_hash,
)
from protocol.topic_name import TopicName

points = st.sets(st.integers(1, HASH_MAX - 1), max_size=20).map(
    lambda inner: (0, *sorted(inner), HASH_MAX)
)
places = st.integers(0, HASH_MAX)


def topic_of(name, namespace="t1/n1"):
    return TopicName.parse(f"persistent://{namespace}/{name}")


@given(points, places)
def test_every_hash_is_in_one_bundle(inner, place):
    boundaries = Boundaries("t/n", inner)
    bundle = boundaries.bundle_at(place)
    assert bundle in boundaries
    assert bundle.lower <= place < bundle.upper or place == bundle.upper == HASH_MAX
    assert [each for each in boundaries.bundles if each.overlaps(bundle)] == [bundle]


@given(points)
def test_boundaries_survive_their_texts(inner):
    boundaries = Boundaries("t/n", inner)
    assert Boundaries.parse("t/n", boundaries.texts).points == inner
    for bundle in boundaries.bundles:
        assert parse_bundle(bundle.name) == bundle
        assert boundaries.find(bundle.range_text) == bundle


@given(points, points, st.lists(st.text(min_size=1, max_size=10), max_size=10), st.randoms())
def test_a_topic_is_counted_in_a_bundle_of_the_broker_that_contains_it(inner, finer, names, order):
    """Also while some bundles are split: those of two sets of boundaries, or some of them."""
    every = {*Boundaries("t/n", inner).bundles, *Boundaries("t/n", finer).bundles}
    mine = order.sample(sorted(every), order.randrange(len(every) + 1))
    bundles = BundlesOfBroker(mine)
    for name in names:
        topic = TopicName("persistent", "t", "n", name)
        fitting = [each for each in mine if each.contains(topic)]
        found = bundles.of(topic)
        assert found in fitting or (found is None and not fitting)
        assert bundles.of(TopicName("persistent", "t", "other", name)) is None


@given(points, places, st.text(max_size=10))
def test_the_parts_of_a_split_cover_the_bundle(inner, place, name):
    boundaries = Boundaries("t/n", inner)
    bundle = boundaries.bundle_at(place)
    middle = middle_of_range(bundle)
    if middle is None:
        assert bundle.upper - bundle.lower == 1
        return
    split = boundaries.split(bundle, [middle])
    assert len(split.bundles) == len(boundaries.bundles) + 1
    assert set(boundaries.bundles) - set(split.bundles) == {bundle}
    parts = sorted(set(split.bundles) - set(boundaries.bundles))
    assert [part.lower for part in parts] == [bundle.lower, middle]
    assert parts[-1].upper == bundle.upper
    assert sum(part.contains(topic_of("t", "t/n")) for part in parts) == bundle.contains(
        topic_of("t", "t/n")
    )


@given(st.lists(places, min_size=2))
def test_a_split_by_topics_leaves_half_of_them_on_each_side(hashes):
    bundle = Bundle("t/n", 0, HASH_MAX)
    middle = middle_of_topics(bundle, hashes)
    ordered = sorted(hashes)
    half = len(hashes) // 2
    if middle is None:
        assert (ordered[half - 1] + ordered[half]) // 2 in (0, HASH_MAX)
    else:
        assert ordered[half - 1] <= middle <= ordered[half]


def test_what_pulsar_does():
    """Observed on Pulsar 4.0.8."""
    boundaries = Boundaries.parse("t1/n1", ["0x00000000", "0x55555555", "0xaaaaaaaa", "0xffffffff"])
    assert boundaries.bundle_of(topic_of("topic1")).range_text == "0x00000000_0x55555555"
    last = boundaries.bundle_of(topic_of("té x-partition-1"))
    assert last.range_text == "0xaaaaaaaa_0xffffffff"
    middle = boundaries.bundles[1]
    assert middle_of_range(middle) == 0x7FFFFFFF
    first = boundaries.bundles[0]
    hashes = [topic_hash(topic_of(f"topic{number}")) for number in range(1, 7)]
    inside = [place for place in hashes if first.lower <= place < first.upper]
    assert middle_of_topics(first, inside) == 0x2BC6ED8C
    with pytest.raises(
        NotABundle,
        match=r"Invalid upper boundary for bundle t1/n1/0x00000000_0x33333333\. "
        r"Expected upper boundary of t1/n1/0x00000000_0x55555555",
    ):
        boundaries.find("0x00000000_0x33333333")


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("x", "Invalid bundle range: x"),
        ("0x00000000", "Invalid bundle range: 0x00000000"),
        ("0x00000000-0x40000000", "Invalid bundle range: 0x00000000-0x40000000"),
        ("0x40000000_0x00000000", "Invalid range: [1073741824..0)"),
        ("0x0_0x00000000", "Cannot create bundle object for an empty key range"),
        (
            "0x10000000_0x40000000",
            "Cannot find bundle t/n/0x10000000_0x40000000 in the bundles list",
        ),
        (
            "0x0_0x1",
            "Invalid upper boundary for bundle t/n/0x00000000_0x00000001. Expected upper boundary "
            "of t/n/0x00000000_0x40000000",
        ),
    ],
)
def test_other_ranges_are_refused_as_by_pulsar(asked, told):
    """Observed on Pulsar 4.0.8."""
    boundaries = Boundaries("t/n", (0, 0x40000000, HASH_MAX))
    with pytest.raises(NotABundle) as refused:
        boundaries.find(asked)
    assert str(refused.value) == told


def test_a_range_may_be_written_in_other_ways():
    boundaries = Boundaries("t/n", (0, 0x40000000, 0xC0000000, HASH_MAX))
    assert boundaries.find("0x0_0x40000000") == boundaries.bundles[0]
    assert boundaries.find("0xC0000000_0xFFFFFFFF") == boundaries.bundles[2]


@given(points, st.lists(st.text(max_size=10)))
def test_each_name_is_within_the_bundle_of_its_topic(inner, locals_):
    boundaries = Boundaries("t/n", inner)
    topics = [TopicName("non-persistent", "t", "n", each) for each in locals_]
    names = [each.full for each in topics]
    for bundle in boundaries.bundles:
        within = list(names_within(bundle, names))
        assert within == [each.full if bundle.contains(each) else None for each in topics]


def test_the_last_hash_belongs_to_the_last_bundle():
    bundle = Bundle("t/n", 0x80000000, HASH_MAX)
    assert Boundaries("t/n", (0, 0x80000000, HASH_MAX)).bundle_at(HASH_MAX) == bundle


def test_the_hash_is_of_the_full_name():
    assert topic_hash(topic_of("a")) == crc32(b"persistent://t1/n1/a")


@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["0x00000000"],
        ["0x00000000", "0x40000000"],
        ["0x10000000", "0xffffffff"],
        ["0x00000000", "0x80000000", "0x40000000", "0xffffffff"],
        ["0x00000000", "0x80000000", "0x80000000", "0xffffffff"],
        ["0x00000000", None, "0xffffffff"],
        ["0x0000000", "0xffffffff"],
        ["0x0000_000", "0xffffffff"],
    ],
)
def test_wrong_boundaries_are_refused(texts):
    with pytest.raises(ValueError, match="t/n"):
        Boundaries.parse("t/n", texts)


@pytest.mark.parametrize(
    "name", ["", "t/n", "t/0x00000000_0xffffffff", "t/n/0xffffffff_0x00000000", "t/n/0x0_0x1"]
)
def test_other_names_are_no_bundles(name):
    assert parse_bundle(name) is None


small_bundles = st.builds(
    Bundle,
    st.sampled_from(["t/a", "t/b"]),
    st.integers(0, 9),
    st.integers(10, 12) | st.integers(1, 5),
).filter(lambda bundle: bundle.lower < bundle.upper)


@given(st.lists(small_bundles, max_size=8))
def test_bundles_that_share_hashes_are_found(bundles):
    assert overlapping(bundles) == {
        one for one in bundles for other in bundles if one != other and one.overlaps(other)
    }
