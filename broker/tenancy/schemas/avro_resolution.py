"""Decides whether data written with one Avro schema can be read with another. Pure.

The rules are those of schema resolution in Avro 1.11's Java library, because Pulsar decides with
it. They are wider than the specification: records match whatever their names; a symbol that the
reader's enum lacks is not an error, since data may not have it; a record of the writer may fit a
branch of a union by its fields alone. A required default value of the wrong type raises, as in that
library, and is not a refusal.

Every pair of records is compared once, and a branch of a union is found by its name, so two
definitions take about as many steps as they have types and fields. The stack is explicit: a chain
of records may be as long as the definition.
"""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, final

from broker.tenancy.schemas.avro_schema import (
    NAMED,
    AvroField,
    AvroType,
    WrongDefault,
    check_default,
    fingerprint,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from broker.tenancy.schemas.budget import Budget

Json = Any
_Pair = tuple[int, int]

_PROMOTIONS: Final = {
    "int": frozenset({"long", "float", "double"}),
    "long": frozenset({"float", "double"}),
    "float": frozenset({"double"}),
    "string": frozenset({"bytes"}),
    "bytes": frozenset({"string"}),
}
"""Kind of the writer -> kinds that the reader may have instead."""


def can_read(reader: AvroType, writer: AvroType, budget: Budget) -> bool:
    """Whether all data written with `writer` can be read with `reader`.

    Raises: WrongDefault: a required default has the wrong type; RuleBroken: the reader's aliases
    make two fields or branches of the writer the same; SchemaTooComplex.
    """
    renamed = _with_aliases(writer, reader, budget)
    return _Resolution(budget).resolve(renamed, reader).is_sound(budget)


@final
class _Outcome:
    """How two types resolve: `failed`, or as well as its parts do."""

    __slots__ = ("failed", "parts")

    def __init__(self, failed: bool = False) -> None:
        self.failed = failed
        self.parts: list[_Outcome] = []

    def is_sound(self, budget: Budget) -> bool:
        """Whether neither it nor any of its parts failed."""
        seen: set[int] = set()
        stack = [self]
        while stack:
            each = stack.pop()
            if each.failed:
                return False
            if id(each) not in seen:
                budget.spend()
                seen.add(id(each))
                stack += each.parts
        return True


_FINE: Final = _Outcome()
_FAILED: Final = _Outcome(failed=True)

_Steps = "Generator[tuple[AvroType, AvroType], _Outcome, _Outcome]"
"""Yields pairs to resolve first, is sent their outcomes, returns its own."""


@final
class _Resolution:
    """One comparison: the known outcomes of pairs of records."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._records: dict[_Pair, _Outcome] = {}
        self._unions: dict[int, _Branches] = {}
        self._equivalent: dict[_Pair, bool] = {}

    def resolve(self, writer: AvroType, reader: AvroType) -> _Outcome:
        """The outcome of a pair, its parts included."""
        stack = [self._steps(writer, reader)]
        outcome: _Outcome | None = None
        while stack:
            self._budget.spend()
            try:
                pair = stack[-1].send(outcome) if outcome is not None else next(stack[-1])
            except StopIteration as ended:
                stack.pop()
                outcome = ended.value
            else:
                outcome = None
                stack.append(self._steps(*pair))
        assert outcome is not None
        return outcome

    def _steps(
        self, writer: AvroType, reader: AvroType
    ) -> Generator[tuple[AvroType, AvroType], _Outcome, _Outcome]:
        if writer.kind == "union":
            return (yield from self._writer_union(writer, reader))
        if writer.kind != reader.kind:
            if reader.kind == "union":
                return (yield from self._reader_union(writer, reader))
            return _FINE if reader.kind in _PROMOTIONS.get(writer.kind, ()) else _FAILED
        if writer.kind == "record":
            return (yield from self._record(writer, reader))
        if writer.kind in ("array", "map"):
            outcome = _Outcome()
            outcome.parts.append((yield writer.item, reader.item))
            return outcome
        if writer.kind in ("enum", "fixed"):
            return _FINE if writer.name == reader.name and writer.size == reader.size else _FAILED
        return _FINE

    def _record(
        self, writer: AvroType, reader: AvroType
    ) -> Generator[tuple[AvroType, AvroType], _Outcome, _Outcome]:
        pair = (id(writer), id(reader))
        outcome = self._records.get(pair)
        if outcome is not None:
            return outcome
        outcome = self._records[pair] = _Outcome()
        for field in writer.fields:
            counterpart = reader.fields_by_name.get(field.name)
            if counterpart is not None:
                outcome.parts.append((yield field.type, counterpart.type))
        for field in reader.fields:
            self._budget.spend()
            if field.name in writer.fields_by_name:
                continue
            if not field.has_default:
                outcome.failed = True
                return outcome
            _check_encodable(field, self._budget)
        return outcome

    def _writer_union(
        self, writer: AvroType, reader: AvroType
    ) -> Generator[tuple[AvroType, AvroType], _Outcome, _Outcome]:
        equivalent = self._are_equivalent(writer, reader)
        outcome = _Outcome()
        for index, branch in enumerate(writer.branches):
            other = reader.branches[index] if equivalent else reader
            part = yield branch, other
            if not equivalent:
                outcome.parts.append(part)
        return outcome

    def _reader_union(
        self, writer: AvroType, reader: AvroType
    ) -> Generator[tuple[AvroType, AvroType], _Outcome, _Outcome]:
        branches = self._unions.get(id(reader))
        if branches is None:
            branches = self._unions[id(reader)] = _Branches(reader, self._budget)
        chosen = branches.exact(writer)
        if chosen is None and writer.kind == "record":
            for candidate in branches.records_like(writer):
                self._budget.spend()
                if not candidate.required <= writer.fields_by_name.keys():
                    continue
                found = yield writer, candidate
                if not found.failed and not any(part.failed for part in found.parts):
                    chosen = candidate
                    break
        if chosen is None:
            chosen = branches.promoted(writer)
        if chosen is None:
            return _FAILED
        outcome = _Outcome()
        outcome.parts.append((yield writer, chosen))
        return outcome

    def _are_equivalent(self, one: AvroType, other: AvroType) -> bool:
        """Whether two types are equal apart from documentation, defaults and namespaces."""
        assumed: list[_Pair] = []
        stack = [(one, other)]
        open_ = set[_Pair]()
        while stack:
            self._budget.spend()
            left, right = stack.pop()
            if left.kind != right.kind:
                return False
            if left.kind in NAMED and left.name != right.name:
                return False
            pair = (id(left), id(right))
            if pair in open_ or self._equivalent.get(pair):
                continue
            open_.add(pair)
            assumed.append(pair)
            if left.symbols != right.symbols or left.size != right.size:
                return False
            if len(left.branches) != len(right.branches) or len(left.fields) != len(right.fields):
                return False
            stack += zip(left.branches, right.branches, strict=True)
            for mine, its in zip(left.fields, right.fields, strict=True):
                if mine.name != its.name:
                    return False
                stack.append((mine.type, its.type))
            if left.item is not left:
                stack.append((left.item, right.item))
        self._equivalent.update(dict.fromkeys(assumed, True))
        return True


@final
class _Branches:
    """The branches of a reader's union, found without looking through them."""

    def __init__(self, union: AvroType, budget: Budget) -> None:
        self._by_full_name: dict[tuple[str, str], AvroType] = {}
        self._by_kind: dict[str, AvroType] = {}
        self._records_by_name: dict[str, list[AvroType]] = {}
        self._in_order = union.branches
        budget.spend(len(union.branches))
        for branch in union.branches:
            if branch.kind in NAMED:
                self._by_full_name[branch.kind, branch.full_name] = branch
            else:
                self._by_kind[branch.kind] = branch
            if branch.kind == "record":
                self._records_by_name.setdefault(branch.name, []).append(branch)
        self._records_by_required = self._by_rarest_field(budget)

    def _by_rarest_field(self, budget: Budget) -> dict[str, list[tuple[int, AvroType]]]:
        """Records by the required field that fewest of them have; by "" if they have none."""
        records = [(i, each) for i, each in enumerate(self._in_order) if each.kind == "record"]
        counts = Counter(name for _, record in records for name in record.required)
        budget.spend(counts.total())
        found: dict[str, list[tuple[int, AvroType]]] = {}
        for index, record in records:
            rarest = min(record.required, key=lambda name: (counts[name], name), default="")
            found.setdefault(rarest, []).append((index, record))
        return found

    def exact(self, writer: AvroType) -> AvroType | None:
        """The branch of the same type; of a named one, of the same full name."""
        if writer.kind in NAMED:
            return self._by_full_name.get((writer.kind, writer.full_name))
        return self._by_kind.get(writer.kind)

    def records_like(self, writer: AvroType) -> list[AvroType]:
        """Records to compare field by field: the last of the same short name, then the first.

        Records that need a field which the writer lacks are omitted where possible.
        """
        alike = self._records_by_name.get(writer.name, [])
        fitting = list(self._records_by_required.get("", ()))
        for name in writer.fields_by_name:
            fitting += self._records_by_required.get(name, ())
        fitting.sort(key=itemgetter(0))
        return [*reversed(alike), *(record for _, record in fitting)]

    def promoted(self, writer: AvroType) -> AvroType | None:
        """The first branch to which data of the writer's kind may be promoted."""
        wider = _PROMOTIONS.get(writer.kind, frozenset())
        if not wider & self._by_kind.keys():
            return None
        return next(branch for branch in self._in_order if branch.kind in wider)


def _check_encodable(field: AvroField, budget: Budget) -> None:
    """Raises: WrongDefault: the default cannot be written as a value of the type."""
    try:
        fits = _is_encodable(field.type, field.default, budget)
    except RecursionError:
        fits = False
    if not fits:
        raise WrongDefault(f"Invalid default for field {field.name}")


def _is_encodable(type_: AvroType, value: Json, budget: Budget) -> bool:
    budget.spend()
    kind = type_.kind
    if kind == "record":
        given = value if isinstance(value, dict) else {}
        for field in type_.fields:
            own = given.get(field.name, field.default)
            if not (field.has_default or field.name in given):
                return False
            if not _is_encodable(field.type, own, budget):
                return False
        return True
    if kind == "enum":
        return isinstance(value, str) and value in type_.symbols
    if kind == "array":
        items = value.values() if isinstance(value, dict) else value
        return not isinstance(items, list | type({}.values())) or all(
            _is_encodable(type_.item, each, budget) for each in items
        )
    if kind == "map":
        if not isinstance(value, dict):
            return not isinstance(value, list) or not value
        return all(_is_encodable(type_.item, each, budget) for each in value.values())
    if kind == "union":
        return bool(type_.branches) and _is_encodable(type_.branches[0], value, budget)
    if kind in ("string", "bytes", "fixed"):
        return isinstance(value, str)
    if kind in ("int", "long", "float", "double"):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind == "boolean":
        return isinstance(value, bool)
    return value is None


@final
class _Aliases:
    """The reader's names for the writer's names."""

    def __init__(self, reader: AvroType, budget: Budget) -> None:
        self.types: dict[str, AvroType] = {}
        self.fields: dict[str, dict[str, str]] = {}
        """Full name of a record -> its fields' other names -> the reader's name."""
        records: list[AvroType] = []
        for each in _reachable(reader, budget):
            for alias in each.aliases:
                self.types[alias] = each
            if each.kind == "record":
                records.append(each)
        for record in records:
            for field in record.fields:
                for alias in field.aliases:
                    self.fields.setdefault(record.full_name, {})[alias] = field.name
        for record in records:
            if record.full_name in self.fields:
                for alias in record.aliases:
                    self.fields[alias] = self.fields[record.full_name]


def _reachable(schema: AvroType, budget: Budget) -> list[AvroType]:
    found: dict[int, AvroType] = {}
    stack = [schema]
    while stack:
        each = stack.pop()
        if id(each) in found:
            continue
        budget.spend()
        found[id(each)] = each
        stack += [field.type for field in reversed(each.fields)]
        stack += reversed(each.branches)
        if each.item is not each:
            stack.append(each.item)
    return list(found.values())


def _with_aliases(writer: AvroType, reader: AvroType, budget: Budget) -> AvroType:
    """The writer's schema with the names that the reader's aliases give it."""
    aliases = _Aliases(reader, budget)
    if not (aliases.types or aliases.fields):
        return writer
    if fingerprint(writer, budget) == fingerprint(reader, budget):
        return writer
    originals = _reachable(writer, budget)
    copies: dict[int, AvroType] = {}
    for original in originals:
        named = aliases.types.get(original.full_name) if original.kind in NAMED else None
        name = named or original
        namespace = name.namespace if original.kind in NAMED else ""
        copy = AvroType(original.kind, name.name if original.kind in NAMED else "", namespace)
        copy.symbols, copy.size = original.symbols, original.size
        copy.enum_default = original.enum_default
        copies[id(original)] = copy
    for original in originals:
        copy = copies[id(original)]
        if original.item is not original:
            copy.item = copies[id(original.item)]
        renamed = aliases.fields.get(copy.full_name, {})
        copy.set_fields(
            [
                AvroField(renamed.get(each.name, each.name), copies[id(each.type)], each.default)
                for each in original.fields
            ]
        )
        copy.set_branches([copies[id(each)] for each in original.branches])
    for copy in copies.values():
        for field in copy.fields:
            check_default(field, budget)
    return copies[id(writer)]
