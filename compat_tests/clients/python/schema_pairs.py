"""Pairs of schema definitions, an older and a newer one, by what changes between them.

Each is text, as a client would send it. The names are those of the trace.
"""

from __future__ import annotations

import json
from typing import Any, Final

Json = Any


def record(*fields: Json, name: str = "R", **more: Json) -> Json:
    """A record; fields are objects, or (name, type) or (name, type, default)."""
    return {"type": "record", "name": name, "fields": [_field(each) for each in fields]} | more


def _field(given: Json) -> Json:
    if isinstance(given, dict):
        return given
    field = {"name": given[0], "type": given[1]}
    return field if len(given) == 2 else field | {"default": given[2]}


def _enum(*symbols: str, **more: Json) -> Json:
    return {"type": "enum", "name": "E", "symbols": list(symbols)} | more


def _fixed(size: int, name: str = "F") -> Json:
    return {"type": "fixed", "name": name, "size": size}


def _inner(*fields: Json, **more: Json) -> Json:
    return record(("i", record(*fields, name="Inner", **more)))


def _of_type(one: Json, other: Json) -> tuple[Json, Json]:
    return record(("f", one)), record(("f", other))


_PLAIN: Final = record(("f", "int"))
_ARRAY_OF_LONG: Final = {"type": "array", "items": "long"}
_A: Final = record(("x", "int"), name="A")
_B: Final = record(("y", "string"), name="B")
_TREE: Final = record(("next", ["null", "R"], None), ("v", "int"))
_DEEPER_TREE: Final = record(("next", ["null", "R"], None), ("v", "long"), ("w", "int", 1))

_DEFINITIONS: Final[dict[str, tuple[Json, Json]]] = {
    "field added with a default": (_PLAIN, record(("f", "int"), ("g", "int", 1))),
    "field added without a default": (_PLAIN, record(("f", "int"), ("g", "int"))),
    "field removed, it had a default": (record(("f", "int"), ("g", "int", 1)), _PLAIN),
    "field removed, it had none": (record(("f", "int"), ("g", "int")), _PLAIN),
    "field added, null by default": (_PLAIN, record(("f", "int"), ("g", ["null", "int"], None))),
    "field renamed": (_PLAIN, record(("g", "int"))),
    "field renamed with an alias": (
        _PLAIN,
        record({"name": "g", "type": "int", "aliases": ["f"]}),
    ),
    "fields in another order": (
        record(("f", "int"), ("g", "string")),
        record(("g", "string"), ("f", "int")),
    ),
    "record renamed": (_PLAIN, record(("f", "int"), name="S")),
    "record renamed with an alias": (_PLAIN, record(("f", "int"), name="S", aliases=["R"])),
    "namespace added": (_PLAIN, record(("f", "int"), namespace="n.s")),
    "namespace in the name": (
        record(("f", "int"), namespace="n.s"),
        record(("f", "int"), name="n.s.R"),
    ),
    "only documentation": (_PLAIN, record({"name": "f", "type": "int", "doc": "d"}, doc="e")),
    "only an own property": (_PLAIN, record(("f", "int"), owner="me")),
    "only the layout of a type": _of_type("int", {"type": "int"}),
    "enum symbol removed": _of_type(_enum("A", "B"), _enum("A")),
    "enum symbol removed, with a default": _of_type(_enum("A", "B"), _enum("A", default="A")),
    "enum symbol added": _of_type(_enum("A"), _enum("A", "B")),
    "enum symbols in another order": _of_type(_enum("A", "B"), _enum("B", "A")),
    "enum default that is no symbol": _of_type(_enum("A"), _enum("A", "B", default="C")),
    "enum renamed": _of_type(_enum("A"), _enum("A", name="G")),
    "invalid default of an added field": (_PLAIN, record(("f", "int"), ("g", "int", "text"))),
    "invalid default of a kept field": (_PLAIN, record(("f", "int", "text"))),
    "invalid default, first schema": (record(("f", "int", "text")), record(("f", "long", 1))),
    "invalid default of a union": (_PLAIN, record(("f", "int"), ("g", ["null", "int"], 1))),
    "union from a type": _of_type("int", ["null", "int"]),
    "union in another order": _of_type(["null", "int"], ["int", "null"]),
    "union widened": _of_type(["null", "int"], ["null", "int", "string"]),
    "union branch promoted": _of_type(["null", "int"], ["null", "long"]),
    "union of records": _of_type(["null", _A, _B], ["null", _B, _A]),
    "union of renamed records": _of_type([_A, _B], [record(("x", "int"), name="C"), _B]),
    "int to long": _of_type("int", "long"),
    "int to float": _of_type("int", "float"),
    "long to double": _of_type("long", "double"),
    "float to double": _of_type("float", "double"),
    "int to string": _of_type("int", "string"),
    "string to bytes": _of_type("string", "bytes"),
    "fixed of another size": _of_type(_fixed(4), _fixed(8)),
    "fixed renamed": _of_type(_fixed(4), _fixed(4, "G")),
    "nested record grows": (_inner(("a", "int")), _inner(("a", "int"), ("b", "int", 0))),
    "nested record grows without a default": (
        _inner(("a", "int")),
        _inner(("a", "int"), ("b", "int")),
    ),
    "array of wider items": _of_type({"type": "array", "items": "int"}, _ARRAY_OF_LONG),
    "array to map": _of_type(_ARRAY_OF_LONG, {"type": "map", "values": "long"}),
    "map of other values": _of_type(
        {"type": "map", "values": "int"}, {"type": "map", "values": "string"}
    ),
    "logical type added": _of_type("long", {"type": "long", "logicalType": "timestamp-millis"}),
    "decimal of another scale": _of_type(
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
    ),
    "null to int": _of_type("null", "int"),
    "recursive record grows": (_TREE, _DEEPER_TREE),
    "primitive at the top": ("int", "long"),
    "array at the top": ({"type": "array", "items": "int"}, _ARRAY_OF_LONG),
    "enum at the top": (_enum("A"), _enum("A", "B")),
    "union at the top": (["null", "int"], ["null", "int", "string"]),
    "record to a primitive": (_PLAIN, "int"),
    "a field twice": (_PLAIN, record(("f", "int"), ("f", "int"))),
    "a name twice": (_PLAIN, record(("f", _fixed(4)), ("g", _fixed(4)))),
    "an unknown type": (_PLAIN, record(("f", "integer"))),
    "an invalid name": (_PLAIN, record(("f-g", "int"))),
    "a record without fields": (_PLAIN, {"type": "record", "name": "R"}),
    "the old form of JSON schemas": (
        _PLAIN,
        {"type": "object", "id": "urn:jsonschema:R", "properties": {"f": {"type": "integer"}}},
    ),
}
_TEXTS: Final = {
    "no JSON": (json.dumps(_PLAIN), "{"),
    "no text at all": (json.dumps(_PLAIN), ""),
    "text after the definition": (json.dumps(_PLAIN), json.dumps(record(("f", "long"))) + " x"),
    "a bare type name": ('"int"', "int"),
}
PAIRS: Final[dict[str, tuple[str, str]]] = {
    name: (json.dumps(older), json.dumps(newer)) for name, (older, newer) in _DEFINITIONS.items()
} | _TEXTS
"""Name -> (older definition, newer definition)."""
NEVER_ANSWERED_AS_JSON: Final = frozenset(
    {
        "enum default that is no symbol",
        "a name twice",
        "an unknown type",
        "an invalid name",
        "a record without fields",
        "text after the definition",
    }
)
"""No Avro schema, and Pulsar's attempt to read it as JSON Schema never ends: it gives no answer."""
