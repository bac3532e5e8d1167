"""The connection that stands for state.db, and the `sqlite3.connect` that answers it."""

import json
import os
import sqlite3
import threading

from .cursor import RemoteCursor, _real_connect
from .statements import _CHANGES, _FIRST_WORD, _READS, _RETURNING, _error, _statement

MAX_PENDING_STATEMENTS = 128
MAX_PENDING_BYTES = 1024 * 1024


class RemoteConnection:
    """What `sqlite3.connect` answers for state.db; as much of sqlite3.Connection as a program without extensions uses.

    Round trips are saved where SQLite would do the same: inside a transaction BEGIN and writes are kept until something
    asks for their result (another statement, rowcount, lastrowid, COMMIT), then all go in one request that stops at the
    first failure. A failure so shows at that point, still inside the transaction and before COMMIT.
    """

    def __init__(self, channel, isolation_level="", read_only=False):
        self.isolation_level = isolation_level
        self.row_factory = None
        self.text_factory = str
        self._channel = channel
        self._id = channel.new_connection()
        self._read_only = read_only
        self._lock = threading.RLock()
        self._open = False  # In a transaction at the machine.
        self._begun = False  # BEGIN is among the pending statements.
        self._pending = []
        self._pending_bytes = 0
        self._changes = 0
        self._closed = False

    # Transactions

    @property
    def in_transaction(self):
        return self._open or self._begun

    @property
    def total_changes(self):
        with self._lock:
            self._flush()
            return self._changes

    def commit(self):
        with self._lock:
            self._check()
            self._finish(b'["COMMIT"]')

    def rollback(self):
        with self._lock:
            self._check()
            self._drop(sqlite3.OperationalError("rolled back before it was sent"))
            if self._open:
                self._exchange([(b'["ROLLBACK"]', None)])

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is not None:
            self.rollback()
            return False
        try:
            self.commit()
        except BaseException:
            self.rollback()
            raise
        return False

    def close(self):
        with self._lock:
            if not self._closed:
                self._closed = True
                self._drop(sqlite3.ProgrammingError("Cannot operate on a closed database."))
                self._channel.forget(self._id)

    def __del__(self):
        # As sqlite3 does; async_delegation leaves its connections to the garbage collector.
        if not getattr(self, "_closed", True):
            self._closed = True
            self._channel.forget(self._id)

    # Statements

    def cursor(self, factory=None):
        self._check()
        return (factory or RemoteCursor)(self)

    def execute(self, sql, parameters=()):
        return self.cursor().execute(sql, parameters)

    def executemany(self, sql, parameters):
        return self.cursor().executemany(sql, parameters)

    def executescript(self, script):
        return self.cursor().executescript(script)

    def _check(self):
        if self._closed:
            raise sqlite3.ProgrammingError("Cannot operate on a closed database.")

    def _run(self, result, sql, sets):
        """Runs `sql` once for each set of parameters, now or with the next request."""
        with self._lock:
            self._check()
            first, second = (word.upper() for word in _FIRST_WORD.match(sql).groups())
            if self._read_only and first not in _READS:
                raise sqlite3.OperationalError("attempt to write a readonly database")
            if first == "BEGIN" and not self.in_transaction:
                self._begun = True
                self._add(_statement(sql, ()), None)
                return
            if first in ("COMMIT", "END") and self.in_transaction:
                return self._finish(_statement(sql, ()))
            if first == "ROLLBACK" and second != "TO" and self._begun and not self._open:
                return self._drop(sqlite3.OperationalError("rolled back before it was sent"))
            if first in _CHANGES:
                if self.isolation_level is not None and not self.in_transaction:
                    self._begun = True
                    self._add(json.dumps([f"BEGIN {self.isolation_level}".strip()]).encode(), None)
                later = self.in_transaction and not _RETURNING.search(sql)
                for parameters in sets:
                    self._add(_statement(sql, parameters), result)
                if not later:
                    self._flush()
                return
            for parameters in sets:
                self._add(_statement(sql, parameters), result)
            self._flush()

    def _script(self, script):
        with self._lock:
            self._check()
            if self.in_transaction:
                self._finish(b'["COMMIT"]')  # As executescript does.
            if self._read_only:
                raise sqlite3.OperationalError("attempt to write a readonly database")
            self._send(b'"s":' + json.dumps(script, ensure_ascii=False).encode())

    def _add(self, statement, result):
        if self._pending and (
            len(self._pending) >= MAX_PENDING_STATEMENTS or self._pending_bytes + len(statement) > MAX_PENDING_BYTES
        ):
            self._flush()
        self._pending.append((statement, result))
        self._pending_bytes += len(statement)
        if result is not None:
            result.waiting += 1

    def _finish(self, statement):
        if self._begun and not self._open and len(self._pending) == 1:
            return self._drop(None)  # BEGIN and COMMIT with nothing between them change nothing.
        if self._pending or self._open:
            self._add(statement, None)
            self._flush()

    def _drop(self, error):
        for _, result in self._take():
            if result is not None:
                result.fail(error)

    def _take(self):
        pending, self._pending = self._pending, []
        self._pending_bytes = 0
        self._begun = False
        return pending

    def _flush(self):
        if self._pending:
            self._exchange(self._take())

    def _exchange(self, statements):
        done = 0
        try:
            answer = self._send(b'"q":[' + b",".join(statement for statement, _ in statements) + b"]", statements)
            done = len(answer["r"])
            if "e" in answer:
                raise _error(answer["e"])
        except BaseException as error:
            for _, result in statements[done:]:
                if result is not None:
                    result.fail(error)
            raise

    def _send(self, content, statements=()):
        try:
            answer = json.loads(self._channel.request(b'{"c":%d,%s}' % (self._id, content)))
        except BaseException:
            # What the machine did is unknown. A new connection there means: rolled back.
            self._channel.forget(self._id)
            self._id = self._channel.new_connection()
            self._open = False
            raise
        self._open = not answer["a"]
        for (_, result), done in zip(statements, answer["r"]):
            self._changes += done["n"]
            if result is not None:
                result.fulfil(done)
        if not statements and "e" in answer:
            raise _error(answer["e"])
        return answer


def replace_connect(channel, home):
    """Makes `sqlite3.connect` answer a RemoteConnection for `home`/state.db and nothing else."""
    wanted = os.path.join(os.path.abspath(home), "state.db")

    def connect(database, timeout=5.0, detect_types=0, isolation_level="", *args, **kwargs):
        text = os.fsdecode(database) if isinstance(database, (str, bytes, os.PathLike)) else ""
        name, _, options = text.removeprefix("file:").partition("?") if kwargs.get("uri") else (text, "", "")
        if os.path.abspath(name) != wanted:
            return _real_connect(database, timeout, detect_types, isolation_level, *args, **kwargs)
        return RemoteConnection(channel, isolation_level, "mode=ro" in options.split("&"))

    sqlite3.connect = sqlite3.dbapi2.connect = connect
