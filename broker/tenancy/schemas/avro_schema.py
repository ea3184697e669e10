"""Avro schema definitions: JSON text to types, with the checks of Avro 1.11's Java parser. Pure.

Pulsar uses that parser to decide which definitions are valid. Its acceptance of definitions, and
its three kinds of error, are therefore followed exactly: the kind decides the status a client gets.
It allows comments, which JSON does not have.

Types refer to each other directly and may be recursive, so nothing here or in `avro_resolution`
descends into them by recursion. Only the parser does, by the nesting of the text, which is bounded.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn, final

if TYPE_CHECKING:
    from broker.tenancy.schemas.budget import Budget

Json = Any

PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
NAMED: Final = frozenset({"record", "enum", "fixed"})
DEPTH_MAX: Final = 200
"""Levels of objects and arrays in a definition."""

_TYPE_KEYS: Final = frozenset(
    {
        "doc",
        "fields",
        "items",
        "name",
        "namespace",
        "size",
        "symbols",
        "values",
        "type",
        "aliases",
    }
)
_ENUM_KEYS: Final = _TYPE_KEYS | {"default"}
_FIELD_KEYS: Final = frozenset({"default", "doc", "name", "order", "type", "aliases"})
_ORDERS: Final = frozenset({"ASCENDING", "DESCENDING", "IGNORE"})
_COMMENT: Final = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"?|//[^\n]*|/\*[^*]*(?:\*(?!/)[^*]*)*(?:\*/)?', re.DOTALL
)
"""A text or a comment. One without an end reaches to the end of the definition: if it did not
match, the search would go on after its first character, which makes the time quadratic."""
_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)


class AvroError(Exception):
    """Base class of schema errors."""


@final
class NotASchema(AvroError):
    """The text does not define a schema (SchemaParseException)."""


@final
class RuleBroken(AvroError):
    """A definition that contradicts itself: a field or a branch twice (AvroRuntimeException)."""


@final
class WrongDefault(AvroError):
    """A default value does not fit its type (AvroTypeException)."""


class NoDefault:
    """Marks a field without a default; null is one."""


NO_DEFAULT: Final = NoDefault()


@final
class AvroField:
    """A field of a record."""

    __slots__ = ("aliases", "default", "name", "order", "properties", "type")

    def __init__(
        self,
        name: str,
        type_: AvroType,
        default: Json = NO_DEFAULT,
        order: str = "ASCENDING",
        aliases: tuple[str, ...] = (),
        properties: str = "",
    ) -> None:
        self.name = name
        self.type = type_
        self.default = default
        self.order = order
        self.aliases = aliases
        self.properties = properties

    @property
    def has_default(self) -> bool:
        """Whether a reader can do without the field."""
        return self.default is not NO_DEFAULT


@final
class AvroType:
    """One type. `kind` decides which attributes are used."""

    __slots__ = (
        "aliases",
        "branches",
        "complete",
        "enum_default",
        "fields",
        "fields_by_name",
        "full_name",
        "item",
        "kind",
        "name",
        "namespace",
        "properties",
        "required",
        "size",
        "symbols",
    )

    def __init__(self, kind: str, name: str = "", namespace: str = "") -> None:
        self.kind = kind
        """A primitive's name, or record, enum, fixed, array, map, union."""
        self.name = name or kind
        self.namespace = namespace
        self.full_name = f"{namespace}.{name}" if namespace else self.name
        self.aliases: tuple[str, ...] = ()
        """Full names."""
        self.properties = ""
        """All attributes that are not Avro's own, in one form."""
        self.complete = kind != "record"
        """False while a record's fields are being parsed."""
        self.fields: tuple[AvroField, ...] = ()
        self.fields_by_name: dict[str, AvroField] = {}
        self.required: frozenset[str] = frozenset()
        """Names of the fields without a default."""
        self.item: AvroType = self
        """The type of an array's items, or of a map's values."""
        self.branches: tuple[AvroType, ...] = ()
        self.symbols: tuple[str, ...] = ()
        self.enum_default: str | None = None
        self.size = 0

    def set_fields(self, fields: list[AvroField]) -> None:
        """Raises: RuleBroken: two fields have the same name."""
        self.fields = tuple(fields)
        for field in fields:
            if field.name in self.fields_by_name:
                raise RuleBroken(f"Duplicate field {field.name} in record {self.full_name}")
            self.fields_by_name[field.name] = field
        self.required = frozenset(each.name for each in fields if not each.has_default)
        self.complete = True

    def set_branches(self, branches: list[AvroType]) -> None:
        """Raises: RuleBroken: a union in the union, or two branches of one name."""
        self.branches = tuple(branches)
        names: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise RuleBroken("Nested union")
            if branch.full_name in names:
                raise RuleBroken(f"Duplicate in union:{branch.full_name}")
            names.add(branch.full_name)


def parse_avro(data: bytes, budget: Budget, *, check_defaults: bool = False) -> AvroType:
    """The type a definition defines.

    Raises: NotASchema, RuleBroken; WrongDefault only with `check_defaults`; SchemaTooComplex.
    """
    return _Parser(budget, check_defaults).type_of(load_json(data, budget), "")


def load_json(data: bytes, budget: Budget) -> Json:
    """Parse a JSON text, skipping comments.

    Raises: NotASchema: it is not JSON, or has more than `DEPTH_MAX` levels; SchemaTooComplex.
    """
    text = data.decode("utf-8", "replace")
    try:
        try:
            definition = json.loads(text, parse_constant=_no_number)
        except ValueError:
            if "/" not in text:
                raise
            definition = json.loads(_COMMENT.sub(_without_comment, text), parse_constant=_no_number)
    except ValueError as error:
        raise NotASchema(f"The definition is not JSON: {error}") from None
    except RecursionError:
        raise NotASchema(f"The definition has more than {DEPTH_MAX} levels") from None
    if _depth_of(definition, budget) > DEPTH_MAX:
        raise NotASchema(f"The definition has more than {DEPTH_MAX} levels")
    return definition


def _depth_of(definition: Json, budget: Budget) -> int:
    """Levels of objects and arrays, and one for the content of the innermost."""
    depth, level = 0, [definition]
    while level:
        budget.spend(len(level))
        depth += 1
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
        level = below
    return depth


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number")


def _without_comment(found: re.Match[str]) -> str:
    text = found.group()
    is_comment = text.startswith("//") or (text.endswith("*/") and len(text) > len("/*/"))
    return " " if is_comment and not text.startswith('"') else text


@final
class _Parser:
    """One definition's names. A name is known after its own definition."""

    def __init__(self, budget: Budget, check_defaults: bool) -> None:
        self._budget = budget
        self._check_defaults = check_defaults
        self._names: dict[str, AvroType] = {}
        self._primitives = {kind: AvroType(kind) for kind in PRIMITIVES}

    def type_of(self, node: Json, namespace: str) -> AvroType:
        """The type of a JSON value. Names are looked up in `namespace`."""
        self._budget.spend()
        if isinstance(node, str):
            return self._named(node, namespace)
        if isinstance(node, list):
            union = AvroType("union")
            union.set_branches([self.type_of(each, namespace) for each in node])
            return union
        if not isinstance(node, dict):
            raise NotASchema(f"Schema not yet supported: {_shown(node)}")
        kind = _required_text(node, "type", "No type")
        if kind in PRIMITIVES:
            found = AvroType(kind)
        elif kind in ("record", "error", "enum", "fixed"):
            return self._definition(node, kind, namespace)
        elif kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            if key not in node:
                raise NotASchema(f"{kind.capitalize()} has no {key} type: {_shown(node)}")
            found = AvroType(kind)
            found.item = self.type_of(node[key], namespace)
        else:
            name, space = _split_name(kind, namespace)
            known = self._names.get(_full_name(name, space))
            if known is None:
                raise NotASchema(f"Type not supported: {kind}")
            return known
        found.properties = _properties(node, _TYPE_KEYS)
        return found

    def _named(self, text: str, namespace: str) -> AvroType:
        if text in PRIMITIVES:
            return self._primitives[text]
        found = self._names.get(_full_name(*_split_name(text, namespace)))
        if found is None:
            found = self._names.get(_full_name(*_split_name(text, "")))
        if found is None:
            raise NotASchema(f"Undefined name: {_shown(text)}")
        return found

    def _definition(self, node: Json, kind: str, namespace: str) -> AvroType:
        given = node.get("namespace")
        name, space = _split_name(
            _required_text(node, "name", "No name in schema"),
            given if isinstance(given, str) else namespace,
        )
        found = AvroType("record" if kind == "error" else kind, name, space)
        if kind == "enum":
            self._enum(found, node)
        elif kind == "fixed":
            _fixed(found, node)
        if found.full_name in self._names:
            raise NotASchema(f"Can't redefine: {found.full_name}")
        self._names[found.full_name] = found
        if found.kind == "record":
            fields = node.get("fields")
            if not isinstance(fields, list):
                raise NotASchema(f"Record has no fields: {_shown(node)}")
            found.set_fields([self._field(each, space or namespace) for each in fields])
        found.properties = _properties(node, _ENUM_KEYS if kind == "enum" else _TYPE_KEYS)
        aliases = [_split_name(each, space) for each in _aliases(node)]
        found.aliases = tuple(_full_name(*each) for each in aliases)
        return found

    def _enum(self, found: AvroType, node: Json) -> None:
        symbols = node.get("symbols")
        if not isinstance(symbols, list):
            raise NotASchema(f"Enum has no symbols: {_shown(node)}")
        self._budget.spend(len(symbols))
        for symbol in symbols:
            _check_name(symbol)
        if len(set(symbols)) != len(symbols):
            raise NotASchema("Duplicate enum symbol")
        found.symbols = tuple(symbols)
        default = node.get("default")
        if isinstance(default, str):
            if default not in found.symbols:
                raise NotASchema(f"The Enum Default: {default} is not in the enum symbol set")
            found.enum_default = default

    def _field(self, node: Json, namespace: str) -> AvroField:
        if not isinstance(node, dict):
            raise NotASchema(f"No field name: {_shown(node)}")
        name = _required_text(node, "name", "No field name")
        if "type" not in node:
            raise NotASchema(f"No field type: {_shown(node)}")
        type_ = self.type_of(node["type"], namespace)
        order = "ASCENDING"
        if "order" in node:
            if not isinstance(node["order"], str) or node["order"].upper() not in _ORDERS:
                raise RuleBroken(f"No order of a field: {_shown(node['order'])}")
            order = node["order"].upper()
        default = node.get("default", NO_DEFAULT)
        if isinstance(default, str) and type_.kind in ("float", "double"):
            try:
                default = float(default)
            except ValueError:
                raise RuleBroken(f"No number: {_shown(default)}") from None
        _check_name(name)
        field = AvroField(name, type_, default, order, (), _properties(node, _FIELD_KEYS))
        if self._check_defaults:
            check_default(field, self._budget)
        field.aliases = tuple(_aliases(node))
        return field


def check_default(field: AvroField, budget: Budget) -> None:
    """Raises: WrongDefault: it is not of the field's type; RuleBroken: that is not known yet."""
    if field.has_default and not is_valid_default(field.type, field.default, budget):
        raise WrongDefault(f"Invalid default for field {field.name}: {_shown(field.default)}")


def is_valid_default(type_: AvroType, value: Json, budget: Budget) -> bool:
    """Whether a JSON value may be the default; of a union, a value of its first branch."""
    try:
        return _fits(type_, value, budget)
    except RecursionError:
        return False


def _fits(type_: AvroType, value: Json, budget: Budget) -> bool:
    budget.spend()
    kind = type_.kind
    if kind in ("string", "bytes", "enum", "fixed"):
        return isinstance(value, str)
    if kind in ("int", "long"):
        integral = isinstance(value, int) and not isinstance(value, bool)
        return integral and value in (_INT if kind == "int" else _LONG)
    if kind in ("float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "null":
        return value is None
    if kind == "array":
        return isinstance(value, list) and all(_fits(type_.item, each, budget) for each in value)
    if kind == "map":
        return isinstance(value, dict) and all(
            _fits(type_.item, each, budget) for each in value.values()
        )
    if kind == "union":
        return bool(type_.branches) and _fits(type_.branches[0], value, budget)
    if not type_.complete:
        raise RuleBroken("Schema fields not set yet")
    return isinstance(value, dict) and all(
        _fits(field.type, value.get(field.name, field.default), budget) for field in type_.fields
    )


def fingerprint(schema: AvroType, budget: Budget) -> bytes:
    """Equal for equivalent schemas, whatever their layout, documentation and aliases."""
    digest = hashlib.sha256()
    seen: set[str] = set()
    stack: list[AvroType | AvroField] = [schema]
    while stack:
        budget.spend()
        each = stack.pop()
        if isinstance(each, AvroField):
            default = _shown(each.default) if each.has_default else ""
            told = ["field", each.name, default, each.order, each.properties]
            stack.append(each.type)
        else:
            told = [each.kind]
            if each.kind not in NAMED or each.full_name not in seen:
                told += [each.properties, *each.symbols, str(each.size)]
                told += [str(len(each.branches)), str(len(each.fields))]
                stack.extend(reversed(each.branches))
                stack.extend(reversed(each.fields))
                if each.item is not each:
                    stack.append(each.item)
            if each.kind in NAMED:
                told.append(each.full_name)
                seen.add(each.full_name)
        for text in told:
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(4, "big") + encoded)
    return digest.digest()


def _fixed(found: AvroType, node: Json) -> None:
    size = node.get("size")
    if isinstance(size, bool) or not isinstance(size, int) or size not in _INT:
        raise NotASchema(f"Invalid or no size: {_shown(node)}")
    if size < 0:
        raise RuleBroken(f"Invalid fixed size: {size}")
    found.size = size


def _split_name(text: str, namespace: str) -> tuple[str, str]:
    space, dot, name = text.rpartition(".")
    _check_name(name)
    return name, space if dot else namespace


def _full_name(name: str, namespace: str) -> str:
    return f"{namespace}.{name}" if namespace else name


def _check_name(name: Json) -> None:
    if not isinstance(name, str):
        raise NotASchema("Null name")
    if not name:
        raise NotASchema("Empty name")
    if name.isascii():
        valid = name.isidentifier()
    else:
        valid = all((c.isalpha() or c.isdecimal() or c == "_") and ord(c) < 0x10000 for c in name)
        valid = valid and (name[0].isalpha() or name[0] == "_")
    if not valid:
        raise NotASchema(f"Illegal character in: {_shown(name)}")


def _required_text(node: Json, key: str, otherwise: str) -> str:
    text = node.get(key)
    if not isinstance(text, str):
        raise NotASchema(f"{otherwise}: {_shown(node)}")
    return text


def _aliases(node: Json) -> list[str]:
    aliases = node.get("aliases", [])
    if not isinstance(aliases, list):
        raise NotASchema(f"aliases not an array: {_shown(node)}")
    for alias in aliases:
        if not isinstance(alias, str):
            raise NotASchema(f"alias not a string: {_shown(alias)}")
    return aliases


def _properties(node: Json, reserved: frozenset[str]) -> str:
    own = {key: value for key, value in node.items() if key not in reserved}
    return json.dumps(own, sort_keys=True, separators=(",", ":")) if own else ""


def _shown(value: Json) -> str:
    """JSON text of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
