"""May a schema follow those a topic has? Pure rules, on lists of schemas.

AVRO and JSON (whose definitions are Avro records too) are resolved by the rules of the Avro
specification, through the avro library; KEY_VALUE by its two parts; PROTOBUF_NATIVE may not change
its root message; of every other type only the type itself matters. What counts as the same schema:
equal Avro definitions whatever their layout, properties or documentation, else equal bytes.

Strategies are Pulsar's: BACKWARD = the new schema reads data of the old one, FORWARD = the old
one reads data of the new one, FULL = both; against the newest version, _TRANSITIVE against all.
Refusals are texts of Pulsar's IncompatibleSchemaException. Old JSON-schema definitions (before
Pulsar 2.1) are accepted only unchanged.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from broker.schemas.schema_info import InvalidSchema, SchemaInfo
from protocol.errors import IncompatibleSchema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from avro.schema import Schema as AvroSchema

_READS_OLD: Final = frozenset({"BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"})
_READ_BY_OLD: Final = frozenset({"FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"})
_IGNORED_IN_COMPARISON: Final = frozenset({"doc", "aliases"})
_DEPTH_MAX: Final = 200
_NO_DEFINITION: Final = b"null"
"""What some Python clients give as the definition of a STRING schema."""
_DEFINITION_BYTES_MAX: Final = 1024 * 1024


def check_valid(schema: SchemaInfo) -> None:
    """Raises: InvalidSchema: the definition is none of its type."""
    if schema.type_name == "AVRO":
        _parse_avro(schema)
    elif schema.type_name == "JSON":
        if not isinstance(_load_json(schema), dict | list | str):
            raise _invalid(schema)
    elif schema.type_name == "KEY_VALUE":
        for part in schema.key_value():
            check_valid(part)
    elif schema.type_name == "PROTOBUF_NATIVE":
        if not isinstance(_load_json(schema), dict):
            raise _invalid(schema)
    elif schema.type_name == "STRING" and schema.data not in (b"", _NO_DEFINITION):
        text = schema.data.decode(errors="replace")
        raise InvalidSchema(f"Invalid schema definition data for string schema : '{text}'")


def is_same(one: SchemaInfo, other: SchemaInfo) -> bool:
    """Whether both are the same schema, so that no new version is made."""
    if one.type_name != other.type_name:
        return False
    if one.data == other.data:
        return True
    if one.type_name not in ("AVRO", "JSON"):
        return False
    try:
        return bool(_normal(_load_json(one)) == _normal(_load_json(other)))
    except InvalidSchema:
        return False


def check_compatible(existing: Sequence[SchemaInfo], new: SchemaInfo, strategy: str) -> None:
    """May `new` follow `existing` (oldest first)? Raises: IncompatibleSchema."""
    if strategy == "ALWAYS_COMPATIBLE" or not existing:
        return
    against = existing if strategy.endswith("_TRANSITIVE") else existing[-1:]
    for old in against:
        _check_pair(old, new, strategy)


def consumer_strategy(strategy: str) -> str:
    """How a consumer's schema is held against those of the topic: it has to read their data."""
    if strategy in ("BACKWARD", "FORWARD", "FORWARD_TRANSITIVE", "FULL"):
        return "BACKWARD"
    return strategy


def _check_pair(old: SchemaInfo, new: SchemaInfo, strategy: str) -> None:
    if old.type_name != new.type_name:
        raise IncompatibleSchema(
            f"Incompatible schema: exists schema type {old.type_name}, "
            f"new schema type {new.type_name}"
        )
    if strategy == "ALWAYS_INCOMPATIBLE":
        raise IncompatibleSchema(
            f"Incompatible schema: strategy {strategy} allows no other schema than the existing one"
        )
    if new.type_name in ("AVRO", "JSON"):
        _check_avro(old, new, strategy)
    elif new.type_name == "KEY_VALUE":
        _check_key_value(old, new, strategy)
    elif new.type_name == "PROTOBUF_NATIVE" and _root_message(old) != _root_message(new):
        raise IncompatibleSchema("Protobuf root message isn't allow change!")


def _check_key_value(old: SchemaInfo, new: SchemaInfo, strategy: str) -> None:
    try:
        pairs = zip(("Key", "Value"), old.key_value(), new.key_value(), strict=True)
    except InvalidSchema as error:
        raise IncompatibleSchema(str(error)) from error
    for which, old_part, new_part in pairs:
        if old_part.type_name != new_part.type_name:
            raise IncompatibleSchema(
                f"{which} schemas are different schema type, from schema type is "
                f"{old_part.type_name} and to schema is {new_part.type_name}"
            )
        _check_pair(old_part, new_part, strategy)


def _check_avro(old: SchemaInfo, new: SchemaInfo, strategy: str) -> None:
    if is_same(old, new):
        return
    try:
        old_avro, new_avro = _parse_avro(old), _parse_avro(new)
    except InvalidSchema as error:
        raise IncompatibleSchema(
            f"Error during schema compatibility check with strategy {strategy}: {error}"
        ) from error
    if strategy in _READS_OLD:
        _check_reads(new_avro, old_avro, strategy)
    if strategy in _READ_BY_OLD:
        _check_reads(old_avro, new_avro, strategy)


def _check_reads(reader: AvroSchema, writer: AvroSchema, strategy: str) -> None:
    from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType

    checker = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
    result = checker.get_compatibility(reader=reader, writer=writer)
    if result.compatibility is SchemaCompatibilityType.compatible:
        return
    where = ", ".join(sorted(result.locations or ())) or "/"
    why = "; ".join(sorted(result.messages or ())) or "no reason known"
    raise IncompatibleSchema(
        f"Error during schema compatibility check with strategy {strategy}: "
        f"Unable to read schema: \n{writer}\nusing schema:\n{reader}\nat {where}: {why}"
    )


def _parse_avro(schema: SchemaInfo) -> AvroSchema:
    """The avro library needs 40 ms and 6 MB once: not before the first structured schema."""
    from avro.errors import AvroException
    from avro.schema import make_avsc_object

    definition = _load_json(schema)
    if _depth(definition) > _DEPTH_MAX:
        raise _invalid(schema)
    try:
        return make_avsc_object(definition, validate_names=False)
    except (AvroException, ValueError, TypeError, AttributeError, KeyError, RecursionError):
        raise _invalid(schema) from None


def _load_json(schema: SchemaInfo) -> Any:  # noqa: ANN401 - any JSON value
    if len(schema.data) > _DEFINITION_BYTES_MAX:
        raise _invalid(schema)
    try:
        return json.loads(schema.data)
    except (ValueError, RecursionError):
        raise _invalid(schema) from None


def _normal(definition: Any) -> Any:  # noqa: ANN401 - any JSON value
    """A definition without what does not tell two schemas apart."""
    if isinstance(definition, dict):
        if set(definition) == {"type"}:
            return _normal(definition["type"])
        return {
            key: _normal(value)
            for key, value in definition.items()
            if key not in _IGNORED_IN_COMPARISON
        }
    if isinstance(definition, list):
        return [_normal(each) for each in definition]
    return definition


def _depth(definition: Any) -> int:  # noqa: ANN401 - any JSON value
    depth, level = 0, [definition]
    while level:
        depth += 1
        below: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
        level = below
    return depth


def _root_message(schema: SchemaInfo) -> object:
    try:
        definition = _load_json(schema)
    except InvalidSchema:
        return None
    return definition.get("rootMessageTypeName") if isinstance(definition, dict) else None


def _invalid(schema: SchemaInfo) -> InvalidSchema:
    return InvalidSchema(f"Invalid schema definition data for {schema.type_name} schema")
