"""Cursors of the connection that stands for state.db, and the results that they give, now or later."""

import sqlite3

from .statements import _CHANGES, _FIRST_WORD, _decode

_real_connect = sqlite3.connect
_templates = {}
_templates_source = None


def _row_template(names):
    """A real cursor with these column names: sqlite3.Row takes its names from one, and so is itself, not an imitation."""
    global _templates_source
    template = _templates.get(names)
    if template is None:
        if _templates_source is None:
            _templates_source = _real_connect(":memory:", check_same_thread=False)
        if len(_templates) >= 256:
            _templates.clear()
        columns = ", ".join('NULL AS "' + name.replace('"', '""') + '"' for name in names)
        template = _templates[names] = _templates_source.execute(f"SELECT {columns}")
    return template


class _Result:
    """What one execute() brings, now or later."""

    __slots__ = ("waiting", "error", "names", "rows", "at", "rowcount", "rowid", "before")

    def __init__(self, before=None):
        self.waiting = 0  # Statements that have not been answered.
        self.error = None
        self.names = None
        self.rows = ()
        self.at = 0
        self.rowcount = -1
        self.rowid = None
        # The result whose rowid stays in force until this one has its own.
        self.before = before.before if before is not None and not before.waiting and before.rowid is None else before

    def fail(self, error):
        self.waiting -= 1
        self.error = error

    def fulfil(self, answer):
        self.waiting -= 1
        if "c" in answer:
            self.names = tuple(answer["c"])
            self.rows = answer["d"]
        if answer["w"]:
            self.rowcount = max(self.rowcount, 0) + answer["n"]
        if "l" in answer:
            self.rowid = int(answer["l"])
        if self.rowid is not None:
            self.before = None


class RemoteCursor:
    arraysize = 1

    def __init__(self, connection):
        self.connection = connection
        self.row_factory = connection.row_factory
        self._result = _Result()

    def execute(self, sql, parameters=()):
        self._result = _Result(self._result)
        self.connection._run(self._result, sql, (parameters,))
        return self

    def executemany(self, sql, parameters):
        if _FIRST_WORD.match(sql).group(1).upper() not in _CHANGES:
            raise sqlite3.ProgrammingError("executemany() can only execute DML statements.")
        before = self._result
        self._result = _Result()
        self.connection._run(self._result, sql, list(parameters))
        result = self._resolved()
        result.rowcount = max(result.rowcount, 0)
        result.rowid, result.before = None, before
        return self

    def executescript(self, script):
        self._result = _Result(self._result)
        self.connection._script(script)
        return self

    def _resolved(self):
        result = self._result
        if result.waiting:
            with self.connection._lock:
                self.connection._flush()
        if result.error is not None:
            raise result.error
        return result

    @property
    def description(self):
        names = self._resolved().names
        return tuple((name,) + (None,) * 6 for name in names) if names else None

    @property
    def rowcount(self):
        return self._resolved().rowcount

    @property
    def lastrowid(self):
        result = self._resolved()
        while result is not None and result.rowid is None:
            result = result.before
        return None if result is None else result.rowid

    def fetchone(self):
        result = self._resolved()
        if result.at >= len(result.rows):
            return None
        values = tuple(_decode(value) for value in result.rows[result.at])
        result.at += 1
        factory = self.row_factory
        if factory is None:
            return values
        if isinstance(factory, type) and issubclass(factory, sqlite3.Row):
            return factory(_row_template(result.names), values)
        return factory(self, values)

    def fetchmany(self, size=None):
        size = self.arraysize if size is None else size
        rows = []
        while len(rows) < size and (row := self.fetchone()) is not None:
            rows.append(row)
        return rows

    def fetchall(self):
        return list(self)

    def __iter__(self):
        return self

    def __next__(self):
        row = self.fetchone()
        if row is None:
            raise StopIteration
        return row

    def close(self):
        self._result = _Result()

    def setinputsizes(self, sizes):
        """Does nothing, as in sqlite3."""

    def setoutputsize(self, size, column=None):
        """Does nothing, as in sqlite3."""
