"""Decides whether a schema may follow those of a topic. Pure rules, on lists of schemas.

AVRO, JSON (whose definitions are Avro records as well) and PROTOBUF are compared by the rules of
Avro's schema resolution, see `avro_resolution`; KEY_VALUE by its two parts. PROTOBUF_NATIVE may not
change its root message. For every other type only the type itself matters. Two schemas are the same
if their Avro definitions are equal apart from layout and documentation, or else if their bytes are.

Strategies are Pulsar's: BACKWARD = the new schema reads data of the old one, FORWARD = the old one
reads data of the new one, FULL = both; against the newest version, _TRANSITIVE against all.
Refusals have the texts of Pulsar's IncompatibleSchemaException. Definitions of the JSON Schema kind
(before Pulsar 2.1) may follow Avro's and vice versa, and each other with the same id.

Every function takes the budget of its check and may raise SchemaTooComplex. The budget is for one
pair of definitions, so a topic may have any number of versions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from broker.tenancy.schemas.avro_resolution import can_read
from broker.tenancy.schemas.avro_schema import (
    AvroError,
    AvroType,
    NotASchema,
    fingerprint,
    load_json,
    parse_avro,
)
from broker.tenancy.schemas.schema_info import InvalidSchema, SchemaInfo
from protocol.errors import IncompatibleSchema, UnknownError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from broker.tenancy.schemas.budget import Budget

AVRO_DEFINED: Final = frozenset({"AVRO", "JSON", "PROTOBUF"})
"""Types with an Avro definition."""
_READS_OLD: Final = frozenset({"BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"})
_READ_BY_OLD: Final = frozenset({"FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"})
_NO_DEFINITION: Final = b"null"
"""The definition that some Python clients send for a STRING schema."""
_SHOWN_MAX: Final = 4_000
"""Characters of a definition in a refusal."""
_JSON_SCHEMA_TYPES: Final = frozenset(
    {"any", "array", "boolean", "integer", "null", "number", "object", "string"}
)
_UNKNOWN_FORMAT: Final = "Unknown schema format"


def check_valid(schema: SchemaInfo, budget: Budget) -> None:
    """Raises: InvalidSchema: the definition is not of its type."""
    kind = schema.type_name
    if kind in AVRO_DEFINED:
        _check_avro_definition(schema, budget)
    elif kind == "KEY_VALUE":
        for part in schema.key_value():
            check_valid(part, budget)
    elif kind == "PROTOBUF_NATIVE":
        if not isinstance(_json_of(schema, budget), dict):
            raise _invalid(schema)
    elif kind == "STRING" and schema.data not in (b"", _NO_DEFINITION):
        text = schema.data.decode(errors="replace")
        raise InvalidSchema(f"Invalid schema definition data for string schema : '{text}'")


def _check_avro_definition(schema: SchemaInfo, budget: Budget) -> None:
    try:
        parsed = parse_avro(schema.data, budget)
    except NotASchema:
        if schema.type_name != "JSON" or not _is_json_schema(schema, budget):
            raise _invalid(schema) from None
    except AvroError:
        raise _invalid(schema) from None
    else:
        if schema.type_name == "AVRO" and parsed.kind == "union":
            raise InvalidSchema("Avro schema typed [UNION] is not supported")


def find_same(existing: Sequence[SchemaInfo], new: SchemaInfo, budget: Budget) -> int | None:
    """The index of an equal schema among the existing ones, so that no new version is made.

    Raises: UnknownError: one of them has a default of another type, or is not an Avro schema.
    Pulsar accepts such a definition as the first of its topic, and then refuses all with this code.
    """
    if new.type_name not in AVRO_DEFINED:
        for index, each in enumerate(existing):
            if each.type_name == new.type_name and each.data == new.data:
                return index
        return None
    if not existing:
        return None
    try:
        wanted = fingerprint(parse_avro(new.data, budget, check_defaults=True), budget)
        for index, each in enumerate(existing):
            if each.type_name not in AVRO_DEFINED:
                continue
            own = budget.fresh()
            parsed = parse_avro(each.data, own, check_defaults=True)
            if each.type_name == new.type_name and fingerprint(parsed, own) == wanted:
                return index
    except AvroError as error:
        raise UnknownError(str(error)) from error
    return None


def check_compatible(
    existing: Sequence[SchemaInfo], new: SchemaInfo, strategy: str, budget: Budget
) -> None:
    """Check that `new` may follow `existing` (oldest first).

    Raises: IncompatibleSchema; UnknownError: a required default is of another type.
    """
    if strategy == "ALWAYS_COMPATIBLE" or not existing:
        return
    if strategy.endswith("_TRANSITIVE"):
        _check_all(existing, new, strategy, budget)
    else:
        _check_latest(existing[-1], new, strategy, budget)


def check_consumer(
    existing: Sequence[SchemaInfo], new: SchemaInfo, strategy: str, budget: Budget
) -> None:
    """Check that a consumer with this schema may read a topic with these: it reads their data.

    Raises: as `check_compatible`.
    """
    if strategy == "ALWAYS_COMPATIBLE" or not existing:
        return
    if strategy in ("BACKWARD", "FORWARD", "FORWARD_TRANSITIVE", "FULL"):
        _check_latest(existing[-1], new, "BACKWARD", budget)
    else:
        _check_all(existing, new, strategy, budget)


def _check_latest(old: SchemaInfo, new: SchemaInfo, strategy: str, budget: Budget) -> None:
    _check_type(old, new)
    if old.data == new.data:
        return
    try:
        _check_each([old], new, strategy, budget)
    except AvroError as error:
        raise UnknownError(str(error)) from error


def _check_all(
    existing: Sequence[SchemaInfo], new: SchemaInfo, strategy: str, budget: Budget
) -> None:
    for old in existing:
        _check_type(old, new)
    try:
        _check_each(existing, new, strategy, budget, against_all=True)
    except AvroError as error:
        raise IncompatibleSchema(str(error)) from error


def _check_type(old: SchemaInfo, new: SchemaInfo) -> None:
    if old.type_name != new.type_name:
        raise IncompatibleSchema(
            f"Incompatible schema: exists schema type {old.type_name}, "
            f"new schema type {new.type_name}"
        )


def _check_each(
    existing: Sequence[SchemaInfo],
    new: SchemaInfo,
    strategy: str,
    budget: Budget,
    *,
    against_all: bool = False,
) -> None:
    """By the common type of the schemas. Raises: IncompatibleSchema, AvroError."""
    if new.type_name == "JSON" and not against_all and _has_json_schema(existing[0], new, budget):
        return
    if new.type_name in AVRO_DEFINED:
        _check_avro(existing, new, strategy, budget)
    elif strategy == "ALWAYS_INCOMPATIBLE":
        raise IncompatibleSchema(
            f"Incompatible schema: strategy {strategy} allows no other schema than the existing one"
        )
    elif new.type_name == "KEY_VALUE":
        _check_key_values(existing, new, strategy, budget)
    elif new.type_name == "PROTOBUF_NATIVE":
        for old in existing:
            if _root_message(old, budget) != _root_message(new, budget):
                raise IncompatibleSchema("Protobuf root message isn't allow change!")


def _check_key_values(
    existing: Sequence[SchemaInfo], new: SchemaInfo, strategy: str, budget: Budget
) -> None:
    try:
        new_parts = new.key_value()
        old_parts = [old.key_value() for old in existing]
    except InvalidSchema as error:
        raise IncompatibleSchema(str(error)) from error
    for index, which in enumerate(("Key", "Value")):
        new_part = new_parts[index]
        olds = [parts[index] for parts in old_parts]
        for old in olds:
            if old.type_name != new_part.type_name:
                raise IncompatibleSchema(
                    f"{which} schemas are different schema type, from schema type is "
                    f"{old.type_name} and to schema is {new_part.type_name}"
                )
        if any(old.data != new_part.data for old in olds):
            _check_each(olds, new_part, strategy, budget)


def _check_avro(
    existing: Sequence[SchemaInfo], new: SchemaInfo, strategy: str, budget: Budget
) -> None:
    try:
        olds = [parse_avro(old.data, budget.fresh()) for old in reversed(existing)]
        parsed = parse_avro(new.data, budget)
    except NotASchema as error:
        raise IncompatibleSchema(str(error)) from error
    for index, old in enumerate(olds):
        text, own = existing[-1 - index].data, budget.fresh()
        if strategy == "ALWAYS_INCOMPATIBLE":
            raise _unreadable(text, new.data, strategy)
        if strategy in _READ_BY_OLD:
            _check_reads(old, parsed, text, new.data, strategy, own)
        if strategy in _READS_OLD:
            _check_reads(parsed, old, new.data, text, strategy, own)


def _check_reads(
    reader: AvroType,
    writer: AvroType,
    reader_text: bytes,
    writer_text: bytes,
    strategy: str,
    budget: Budget,
) -> None:
    if not can_read(reader, writer, budget):
        raise _unreadable(writer_text, reader_text, strategy)


def _unreadable(writer: bytes, reader: bytes, strategy: str) -> IncompatibleSchema:
    return IncompatibleSchema(
        f"Error during schema compatibility check with strategy {strategy}: "
        f"org.apache.avro.SchemaValidationException: Unable to read schema: \n{_short(writer)}\n"
        f"using schema:\n{_short(reader)}"
    )


def _short(definition: bytes) -> str:
    text = definition.decode(errors="replace")
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _has_json_schema(old: SchemaInfo, new: SchemaInfo, budget: Budget) -> bool:
    """Whether one of two JSON schemas is of the old form, and the new one may follow.

    Raises: IncompatibleSchema.
    """
    old_is_avro, new_is_avro = _is_avro(old, budget), _is_avro(new, budget)
    if old_is_avro and new_is_avro:
        return False
    if not old_is_avro and not _is_json_schema(old, budget):
        return True  # unreadable, so it may be replaced
    if not new_is_avro and not _is_json_schema(new, budget):
        raise IncompatibleSchema(_UNKNOWN_FORMAT)
    if new_is_avro or old_is_avro:
        return True
    if _json_of(old, budget).get("id") != _json_of(new, budget).get("id"):
        raise IncompatibleSchema(
            f"Incompatible Schema from {_short(old.data)} + to {_short(new.data)}"
        )
    return True


def _is_avro(schema: SchemaInfo, budget: Budget) -> bool:
    try:
        parse_avro(schema.data, budget)
    except NotASchema:
        return False
    return True


def _is_json_schema(schema: SchemaInfo, budget: Budget) -> bool:
    try:
        definition = _json_of(schema, budget)
    except InvalidSchema:
        return False
    return isinstance(definition, dict) and (
        definition.get("type") in _JSON_SCHEMA_TYPES or "$ref" in definition
    )


def _json_of(schema: SchemaInfo, budget: Budget) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return load_json(schema.data, budget)
    except NotASchema:
        raise _invalid(schema) from None


def _root_message(schema: SchemaInfo, budget: Budget) -> object:
    try:
        definition = _json_of(schema, budget)
    except InvalidSchema:
        return None
    return definition.get("rootMessageTypeName") if isinstance(definition, dict) else None


def _invalid(schema: SchemaInfo) -> InvalidSchema:
    return InvalidSchema(f"Invalid schema definition data for {schema.type_name} schema")
