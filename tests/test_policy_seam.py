"""Only broker/tenancy/policies knows which policy and which configuration key decide what."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from broker.tenancy.policies.effective import OVERRIDDEN_KEYS

BROKER = Path(__file__).resolve().parent.parent / "broker"
SHOWS_OR_CHANGES_RECORDS = {"http", "tenancy"}
"""Rooms that read what a namespace itself says: the admin API answers with it."""
FILES = [
    path
    for path in sorted(BROKER.rglob("*.py"))
    if "tests" not in path.parts and path.relative_to(BROKER).parts[:2] != ("tenancy", "policies")
]


def attributes(path: Path) -> list[ast.Attribute]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(BROKER)))
def test_nobody_else_reads_the_keys_that_policies_override(path: Path) -> None:
    assert not {node.attr for node in attributes(path)} & OVERRIDDEN_KEYS


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(BROKER)))
def test_nobody_else_reads_the_record_of_a_namespace(path: Path) -> None:
    if path.relative_to(BROKER).parts[0] in SHOWS_OR_CHANGES_RECORDS:
        return
    of_policies = [
        ast.unparse(node)
        for node in attributes(path)
        if node.attr in ("record", "fields") and "policies" in ast.unparse(node.value)
    ]
    assert not of_policies


def test_topics_know_policies_and_not_namespaces() -> None:
    for path in (BROKER / "topics" / "topic").glob("*.py"):
        assert "broker.tenancy.namespaces.namespaces" not in path.read_text(encoding="utf-8"), path


def test_policies_stand_below_topics_and_namespaces() -> None:
    below = (
        "broker.ground.config",
        "broker.tenancy.policies",
        "broker.ground.refusal",
        "broker.ground.slices",
    )
    for path in (BROKER / "tenancy" / "policies").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("broker."):
                assert (node.module or "").startswith(below), f"{path}: {node.module}"
