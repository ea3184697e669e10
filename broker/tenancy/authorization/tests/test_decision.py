"""The decision: single rules, and what holds for all callers, rights and grants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.tenancy.authorization.decision import Facts, Rules, Scope, Verdict, decide
from broker.tenancy.authorization.operations import Right
from broker.tenancy.policies.grants import ACTIONS, Grants, grants_in
from protocol.topic_name import TopicName
from security.caller import THIS_BROKER, UNAUTHENTICATED, Caller, flaw_of

TOPIC = TopicName.parse("persistent://t/n/x")
PARTITION = TopicName.parse("persistent://t/n/x-partition-3")
SCOPE = Scope("t", "t/n", TOPIC)
NOBODY: frozenset[str] = frozenset()


def granted(*, admins=(), prefix=False, namespace=None, topics=None, subscriptions=None) -> Facts:
    fields = {
        "auth_policies": {
            "namespace_auth": namespace or {},
            "destination_auth": topics or {},
            "subscription_auth_roles": subscriptions or {},
        },
        "subscription_auth_mode": "Prefix" if prefix else "None",
    }
    return Facts(frozenset(admins), grants_in(fields))


def verdict(role, right, facts, scope=SCOPE, *, original=None, **rules) -> Verdict:
    kept = {
        key: frozenset(value) if isinstance(value, set) else value for key, value in rules.items()
    }
    return decide(Caller(role, original), right, scope, facts, Rules(**kept)).verdict


def test_without_a_grant_nothing_is_allowed():
    for right in Right:
        expected = Verdict.ALLOWED if right is Right.NONE else Verdict.DENIED
        assert verdict("a", right, granted()) is expected


def test_the_broker_itself_may_do_everything():
    for right in Right:
        assert decide(THIS_BROKER, right, SCOPE, Facts(), Rules()).is_allowed
        assert decide(THIS_BROKER, right, SCOPE, granted(prefix=True), Rules()).is_allowed


def test_a_caller_without_a_role_may_nothing():
    facts = granted(namespace={"None": ["produce"], "": ["produce"]})
    decision = decide(
        UNAUTHENTICATED, Right.PRODUCE, SCOPE, facts, Rules(super_users=frozenset({""}))
    )
    assert decision.verdict is Verdict.DENIED


def test_an_administrator_of_the_tenant_may_all_but_what_needs_a_super_user():
    for right in Right:
        expected = Verdict.DENIED if right is Right.SUPER_USER else Verdict.ALLOWED
        assert verdict("a", right, granted(admins={"a"})) is expected


def test_a_grant_to_produce_is_none_to_consume():
    facts = granted(namespace={"a": ["produce"]})
    assert verdict("a", Right.PRODUCE, facts) is Verdict.ALLOWED
    assert verdict("a", Right.LOOKUP, facts) is Verdict.ALLOWED
    assert verdict("a", Right.CONSUME, facts) is Verdict.DENIED
    assert verdict("a", Right.CONSUME_IN_NAMESPACE, facts) is Verdict.DENIED


def test_the_log_of_policies_is_for_administrators():
    every = granted(admins={"admin"}, namespace={"a": ["produce", "consume"]})
    for name in (
        "persistent://t/n/__change_events",
        "persistent://t/n/__change_events-partition-1",
    ):
        scope = Scope("t", "t/n", TopicName.parse(name), "__compaction")
        for right in (Right.PRODUCE, Right.CONSUME):
            assert verdict("a", right, every, scope) is Verdict.DENIED
            assert verdict("admin", right, every, scope) is Verdict.ALLOWED
        assert verdict("a", Right.LOOKUP, every, scope) is Verdict.ALLOWED


def test_a_grant_on_a_topic_holds_for_its_partitions_and_for_no_other():
    facts = granted(topics={TOPIC.full: {"a": ["consume"]}})
    other = TopicName.parse("persistent://t/n/xy")
    assert verdict("a", Right.CONSUME, facts) is Verdict.ALLOWED
    assert verdict("a", Right.CONSUME, facts, Scope("t", "t/n", PARTITION)) is Verdict.ALLOWED
    assert verdict("a", Right.CONSUME, facts, Scope("t", "t/n", other)) is Verdict.DENIED
    assert verdict("a", Right.CONSUME_IN_NAMESPACE, facts) is Verdict.DENIED
    of_partition = granted(topics={PARTITION.full: {"a": ["consume"]}})
    assert verdict("a", Right.CONSUME, of_partition) is Verdict.DENIED


@pytest.mark.parametrize(
    ("pattern", "role", "matches"),
    [
        ("app-*", "app-1", True),
        ("app-*", "app-", True),
        ("app-*", "an-app-1", False),
        ("*-app", "my-app", True),
        ("*-app", "my-apps", False),
        ("*", "anyone", True),
        ("app-1", "app-1", True),
        ("a*p", "app", False),
    ],
)
def test_wildcards_stand_at_one_end_and_count_only_if_configured(pattern, role, matches):
    for facts in (
        granted(namespace={pattern: ["produce"]}),
        granted(topics={TOPIC.full: {pattern: ["produce"]}}),
    ):
        on = verdict(role, Right.PRODUCE, facts, has_wildcards=True)
        assert (on is Verdict.ALLOWED) == matches
        off = verdict(role, Right.PRODUCE, facts)
        assert (off is Verdict.ALLOWED) == (pattern == role)


def test_a_subscription_with_named_roles_is_closed_to_others():
    facts = granted(
        namespace={"a": ["consume"], "b": ["consume"]}, subscriptions={"s": ["a"], "open": []}
    )

    def of(role, name):
        return verdict(role, Right.CONSUME, facts, replace(SCOPE, subscription=name))

    assert of("a", "s") is Verdict.ALLOWED
    assert of("b", "s") is Verdict.DENIED
    assert of("b", "open") is Verdict.ALLOWED
    assert of("b", "other") is Verdict.ALLOWED


def test_a_role_named_for_a_subscription_needs_the_grant_to_consume_too():
    facts = granted(subscriptions={"s": ["a"]})
    scope = replace(SCOPE, subscription="s")
    assert verdict("a", Right.CONSUME, facts, scope) is Verdict.DENIED


def test_with_prefix_mode_a_subscription_begins_with_its_role():
    facts = granted(prefix=True, namespace={"a": ["consume"]})
    assert verdict("a", Right.CONSUME, facts, replace(SCOPE, subscription="a-1")) is Verdict.ALLOWED
    other = verdict("a", Right.CONSUME, facts, replace(SCOPE, subscription="b-1"))
    assert other is Verdict.OTHER_PREFIX
    assert verdict("a", Right.CONSUME, facts) is Verdict.ALLOWED


def test_a_proxy_and_the_one_for_whom_it_speaks_must_both_be_allowed():
    facts = granted(namespace={"p": ["produce"], "a": ["produce", "consume"], "b": ["consume"]})

    def of(original, right):
        return verdict("p", right, facts, original=original, proxies=frozenset({"p", "q"}))

    assert of("a", Right.PRODUCE) is Verdict.ALLOWED
    assert of("a", Right.CONSUME) is Verdict.DENIED
    assert of("b", Right.PRODUCE) is Verdict.DENIED
    assert of("q", Right.PRODUCE) is Verdict.WRONG_ORIGINAL
    assert of("", Right.PRODUCE) is Verdict.WRONG_ORIGINAL
    assert of(None, Right.PRODUCE) is Verdict.WRONG_ORIGINAL
    assert verdict("a", Right.PRODUCE, facts, original="b") is Verdict.WRONG_ORIGINAL


def test_only_a_super_user_is_not_told_that_a_tenant_does_not_exist():
    facts = Facts(None, None)
    assert verdict("a", Right.PRODUCE, facts) is Verdict.NO_TENANT
    assert verdict("a", Right.PRODUCE, facts, super_users=frozenset({"a"})) is Verdict.ALLOWED
    assert verdict("a", Right.SUPER_USER, facts) is Verdict.DENIED


ROLES = st.sampled_from(["a", "ab", "b", "p", "*", "a*", "*b", ""])
SETS = st.frozensets(ROLES, max_size=3)
ACTION_SETS = st.frozensets(st.sampled_from(ACTIONS), max_size=3)
BY_ROLE = st.dictionaries(ROLES, ACTION_SETS, max_size=3)
TOPICS = st.sampled_from([TOPIC, PARTITION])
GRANTS = st.builds(
    Grants,
    BY_ROLE,
    st.dictionaries(TOPICS.map(lambda topic: topic.full), BY_ROLE, max_size=2),
    st.dictionaries(st.sampled_from(["s", "a-s"]), SETS, max_size=2),
    st.booleans(),
)
FACTS = st.builds(Facts, st.none() | SETS, st.none() | GRANTS)
RULES = st.builds(Rules, SETS, SETS, st.booleans())
CALLERS = st.builds(Caller, st.none() | ROLES, st.none() | ROLES)
SCOPES = st.builds(Scope, st.just("t"), st.just("t/n"), TOPICS, st.sampled_from(["", "s", "a-s"]))
RIGHTS = st.sampled_from(list(Right))


@given(CALLERS, RIGHTS, SCOPES, FACTS, RULES)
def test_a_super_user_may_everything(caller, right, scope, facts, rules):
    roles = {role for role in (caller.role, caller.original_role) if role is not None}
    rules = replace(rules, super_users=rules.super_users | roles)
    if caller.role is not None and not flaw_of(caller, rules.proxies, equal_is_fine=True):
        assert decide(caller, right, scope, facts, rules).is_allowed


@given(CALLERS, RIGHTS, SCOPES, FACTS, RULES, st.data())
def test_fewer_grants_never_allow_more(caller, right, scope, facts, rules, data):
    fewer = data.draw(st.sampled_from(list(_fewer(facts, rules))))
    if decide(caller, right, scope, *fewer).is_allowed:
        assert decide(caller, right, scope, facts, rules).is_allowed


def _fewer(facts: Facts, rules: Rules):
    """Everything that is one grant less."""
    yield replace(facts, admins=None), rules
    yield replace(facts, grants=None), rules
    for role in facts.admins or ():
        yield replace(facts, admins=(facts.admins or NOBODY) - {role}), rules
    for role in rules.super_users:
        yield facts, replace(rules, super_users=rules.super_users - {role})
    grants = facts.grants
    if grants is None:
        return
    for role in grants.namespace:
        left = {key: value for key, value in grants.namespace.items() if key != role}
        yield replace(facts, grants=replace(grants, namespace=left)), rules
    for topic in grants.topics:
        left = {key: value for key, value in grants.topics.items() if key != topic}
        yield replace(facts, grants=replace(grants, topics=left)), rules
    if not grants.is_prefix_needed:
        yield replace(facts, grants=replace(grants, is_prefix_needed=True)), rules
    if rules.has_wildcards:
        yield facts, replace(rules, has_wildcards=False)


@given(RIGHTS, SCOPES, FACTS, RULES, ROLES, ROLES)
def test_a_proxy_never_gets_more_than_either_role(right, scope, facts, rules, proxy, original):
    rules = replace(rules, proxies=frozenset({proxy}))
    if decide(Caller(proxy, original), right, scope, facts, rules).is_allowed:
        alone = replace(rules, proxies=NOBODY)
        assert decide(Caller(proxy), right, scope, facts, alone).is_allowed
        assert (
            right is Right.NONE or decide(Caller(original), right, scope, facts, alone).is_allowed
        )
