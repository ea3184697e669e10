"""Expressions of policies mean what they mean in Java, and take no more time than their length."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.cluster.name_patterns import (
    DEPTH_MAX,
    PATTERN_LENGTH_MAX,
    NamePattern,
    PatternRefused,
)

CHARS = "ab/-0"
ATOMS = st.sampled_from(
    ["a", "b", "/", "-", "0", ".", "[ab]", "[^a]", r"[\w-]", r"\d", r"\W", r"\."]
)
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?"])).map(
            lambda two: f"({two[0]}){two[1]}"
        ),
    ),
    max_leaves=8,
)


@given(PATTERNS, st.lists(st.text(CHARS, max_size=8), max_size=5))
def test_it_matches_what_pythons_expressions_match(text, names):
    pattern, expected = NamePattern(text), re.compile(text, re.ASCII)
    for name in names:
        assert pattern.matches(name) == (expected.fullmatch(name) is not None)


@pytest.mark.parametrize(
    ("text", "matched", "others"),
    [
        ("public/default", ["public/default"], ["public/default2", "xpublic/default", ""]),
        ("tenant/.*", ["tenant/", "tenant/a-1:x"], ["tenant", "other/tenant/"]),
        ("^a$|^b", ["a", "b"], ["ab"]),
        ("(a|b)/n[0-9]{1,2}", ["a/n1", "b/n12"], ["c/n1", "a/n", "a/n123"]),
        (r"broker-\d+\.example\.com", ["broker-12.example.com"], ["broker-12xexample.com"]),
        (r"\Qa.b*\E?", ["a.b*", "a.b"], ["axb*"]),
        (r"\Aa\z", ["a"], ["b"]),
        ("[a-c-]+", ["a-c"], ["d"]),
        ("", [""], ["a"]),
        ("a||b", ["a", "", "b"], ["ab"]),
    ],
)
def test_names_of_namespaces_and_brokers(text, matched, others):
    pattern = NamePattern(text)
    assert [name for name in (*matched, *others) if pattern.matches(name)] == matched


@pytest.mark.parametrize(
    "text",
    [
        "(a",
        "a)",
        "*a",
        "a{",
        "a{2,1}",
        "a{1001}",
        "[",
        "[]a]",
        "[b-a]",
        "[a&&b]",
        "[a[b]]",
        "(?=a)b",
        "(?<x>a)",
        r"(a)\1",
        r"\bword",
        r"\p{Alpha}",
        "a*+",
        "a**",
        "^*",
        "a\\",
        "((a{1000}){1000}){1000}",
        "(" * (DEPTH_MAX + 1) + ")" * (DEPTH_MAX + 1),
        "a" * (PATTERN_LENGTH_MAX + 1),
    ],
)
def test_what_is_no_expression_or_not_understood_is_refused(text):
    with pytest.raises(PatternRefused):
        NamePattern(text)


def test_no_expression_takes_more_than_linear_time():
    """Each of these takes a backtracking matcher longer than the age of the machine."""
    begun = time.process_time()
    for text in ("(a+)+b", "(a|aa)+b", "(a*)*b", "(.*a){20}b"):
        assert not NamePattern(text).matches("a" * 2_000)
    assert time.process_time() - begun < 30
