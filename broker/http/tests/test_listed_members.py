"""Members of statistics that always have one value are those that `docs/operations/monitoring.md`
lists.

The sources are read for this: a member that is made from a literal, or from a field of a snapshot
that a kind of subscription leaves at its default, has one value.
"""

import ast
import re
from pathlib import Path

from broker.http.tests.test_topic_layouts import publish

TREE = Path(__file__).parents[3]
PAGE = TREE / "docs" / "operations" / "monitoring.md"
HEADING = "### Members with one value"
SHAPES = (
    "broker/http/topics/topic_json.py",
    "broker/http/topics/internal_json.py",
    "broker/http/topics/stats.py",
    "broker/topics/subscription/statistics.py",
    "broker/topics/broadcast/statistics.py",
)
SNAPSHOTS = "broker/topics/subscription/statistics.py"
ROWS = ("ConsumerStatistics", "ConsumerSums", "SubscriptionStatistics")
KINDS = {
    "stock": "broker/topics/subscription/snapshot.py",
    "broadcast": "broker/topics/broadcast/statistics.py",
    "non-persistent": "broker/topics/subscription/non_persistent.py",
}
OF_THE_KIND_ITSELF = ("type", "isDurable", "durable")
T = "persistent/public/default"


def parsed(path):
    return ast.parse((TREE / path).read_text(encoding="utf-8"))


def is_one_value(node):
    """A literal, or a constant of the module."""
    if isinstance(node, ast.Dict | ast.List | ast.Tuple):
        return not ast.dump(node).count("elts=[C") and not getattr(node, "keys", None)
    if isinstance(node, ast.UnaryOp):
        return is_one_value(node.operand)
    return isinstance(node, ast.Constant) or (
        isinstance(node, ast.Name) and node.id.lstrip("_").isupper()
    )


def members_of(function):
    """(name, expression) of each member that the function gives to an object of JSON."""
    for node in ast.walk(function):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, value
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            key = node.targets[0].slice
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, node.value


def functions(path):
    return [
        node
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def from_literals():
    found = [pair for path in SHAPES for each in functions(path) for pair in members_of(each)]
    varying = {name for name, value in found if not is_one_value(value)}
    return {name for name, value in found if is_one_value(value)} - varying


def fields_of_rows():
    """Of each kind of row: its fields with a default, in order."""
    classes = [each for each in parsed(SNAPSHOTS).body if isinstance(each, ast.ClassDef)]
    return {
        each.name: {
            field.target.id: field.value
            for field in each.body
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        }
        for each in classes
        if each.name in ROWS
    }


def left_alone(kind):
    """The fields of rows that always have one value for this kind of subscription, as (row, field),
    and those that it lacks."""
    found, absent = set(), set()
    for row, fields in fields_of_rows().items():
        calls = [
            node
            for node in ast.walk(parsed(KINDS[kind]))
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == row
        ]
        for call in calls:
            given = {each.arg: each.value for each in call.keywords}
            if row == "ConsumerSums" and not call.args and not given:
                continue  # filled by `add`
            starred = sum(2 if isinstance(each, ast.Starred) else 1 for each in call.args)
            given |= dict.fromkeys(list(fields)[:starred], ast.Name("given"))
            for field, default in fields.items():
                value = given.get(field, default)
                if isinstance(value, ast.Constant) and value.value is None:
                    absent.add((row, field))
                elif field not in given or is_one_value(value):
                    found.add((row, field))
    return found, absent


def used_by(row, expression):
    """The fields of rows that an expression in a method of this row reads."""
    owners = {"self": row, "sums": "ConsumerSums"}
    return {
        (owners[node.value.id], node.attr)
        for node in ast.walk(expression)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in owners
    }


def of_kind(kind, row):
    """Members of this row that are made only from fields with one value."""
    alone, absent = left_alone(kind)
    found = set()
    [made] = [
        function
        for each in parsed(SNAPSHOTS).body
        if isinstance(each, ast.ClassDef) and each.name == row
        for function in each.body
        if isinstance(function, ast.FunctionDef) and function.name == "as_json"
    ]
    lacked = {
        name
        for node in ast.walk(made)
        if isinstance(node, ast.If) and used_by(row, node.test) & absent
        for name, _ in members_of(node)
    }
    for name, value in members_of(made):
        used = used_by(row, value)
        if used and used <= alone and name not in {*lacked, *OF_THE_KIND_ITSELF}:
            found.add(name)
    return found


def listed():
    """By the first column of the page's table: the names in the second one."""
    section = PAGE.read_text(encoding="utf-8").split(HEADING)[1].split("\n#")[0]
    rows = re.findall(r"^\| ([^|`]+) \| (.+) \|$", section, re.MULTILINE)
    own = [(where, members.partition(" and in the ")[0]) for where, members in rows]
    return {where: set(re.findall(r"`(\w+)`", members)) for where, members in own}


def test_members_with_one_value_are_listed_and_no_others():
    page = listed()
    everywhere = page["topics"] | page["subscriptions"] | page["internal statistics"]
    rows = {
        "broadcast subscriptions": ("broadcast", "SubscriptionStatistics"),
        "consumers of broadcast subscriptions": ("broadcast", "ConsumerStatistics"),
        "subscriptions of non-persistent topics": ("non-persistent", "SubscriptionStatistics"),
    }
    of_stock = [of_kind("stock", row) for row in ("SubscriptionStatistics", "ConsumerStatistics")]
    assert from_literals() | set().union(*of_stock) == everywhere
    assert {name: of_kind(*row) for name, row in rows.items()} == {
        name: page[name] for name in rows
    }


async def test_members_that_are_listed_are_printed(broker, http):
    page = listed()
    await http("PUT", f"{T}/a")
    await http("PUT", f"{T}/a/subscription/s")
    await publish(broker, "persistent://public/default/a", 1)
    _, stats = await http("GET", f"{T}/a/stats")
    _, internal = await http("GET", f"{T}/a/internalStats")
    assert page["topics"] <= stats.keys()
    assert page["subscriptions"] <= stats["subscriptions"]["s"].keys()
    assert page["internal statistics"] <= internal.keys() | internal["cursors"]["s"].keys()


def test_a_member_that_becomes_a_literal_is_found():
    """The reader of the sources itself."""
    function = ast.parse(
        'def f(a):\n    r = {"one": 0, "two": a, "three": {}}\n    r["four"] = _NO'
    )
    found = {name: is_one_value(value) for name, value in members_of(function)}
    assert found == {"one": True, "two": False, "three": True, "four": True}
