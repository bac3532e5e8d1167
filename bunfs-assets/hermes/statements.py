"""Statements, values and errors, from Python's sqlite3 to the JSON of a frame and back."""

import base64
import json
import re
import sqlite3

_SAFE = 2**53 - 1
_CHANGES = frozenset(("INSERT", "UPDATE", "DELETE", "REPLACE"))
_READS = frozenset(("SELECT", "WITH", "PRAGMA", "EXPLAIN", "VALUES", "BEGIN", "COMMIT", "END", "ROLLBACK"))
_FIRST_WORD = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*([A-Za-z]*)\s*([A-Za-z]*)", re.S)
_RETURNING = re.compile(r"\breturning\b", re.I)


def _encode(value):
    kind = type(value)
    if value is None:
        return value
    if kind is str:
        if not value.isascii():
            value.encode()  # A lone surrogate fails here, with the error that SQLite's binding gives.
        return value
    if kind is int or kind is bool:
        value = int(value)
        if -_SAFE <= value <= _SAFE:
            return value
        if not -(2**63) <= value < 2**63:
            raise OverflowError("Python int too large to convert to SQLite INTEGER")
        return {"i": str(value)}
    if kind is float:
        if value != value:
            return None  # As SQLite binds it.
        if value in (float("inf"), float("-inf")):
            raise sqlite3.DataError("infinity cannot be sent to SessionDB")
        return {"f": value} if value.is_integer() else value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"b": base64.b64encode(bytes(value)).decode()}
    for basic in (str, int, float):
        if isinstance(value, basic):
            return _encode(basic(value))
    return _encode(sqlite3.adapt(value))  # Raises ProgrammingError for a type without an adapter.


def _decode(value):
    if type(value) is not dict:
        return value
    if "f" in value:
        return float(value["f"])
    return int(value["i"]) if "i" in value else base64.b64decode(value["b"])


def _statement(sql, parameters):
    """One statement as bytes of JSON."""
    if isinstance(parameters, dict):
        values = {name: _encode(value) for name, value in parameters.items()}
    else:
        values = [_encode(value) for value in parameters]
    return json.dumps([sql, values] if values else [sql], ensure_ascii=False, separators=(",", ":")).encode()


def _error(described):
    error = getattr(sqlite3, described["k"])(described["m"])
    if "n" in described:
        error.sqlite_errorname = described["n"]
        error.sqlite_errorcode = getattr(sqlite3, described["n"], None)
    return error
