"""Starts Hermes' own ACP server inside a holder: `python -I start.py`, in place of the console script `hermes-acp`.

Hermes itself is not changed. Before it is imported, three things of the Python standard library are replaced:

- the process is made not dumpable, so that no program it starts can read its environment or memory;
- `sqlite3.connect` for exactly `$HERMES_HOME/state.db` answers a connection whose SQL goes over descriptor 3 to the
  machine, which keeps SessionDB (architecture, "SessionDB"); every other database stays an ordinary SQLite file;
- every program that Hermes starts goes through the launcher `confined-exec shell` and gets no private variable.

Variables: HERMES_HOME (required). EDGE_LAUNCHER: path of confined-exec; without it and without the file
/opt/edge/confined-exec, programs start directly (tests). EDGE_PRIVATE_NAMES: names of the private variables, separated by
white space; without it everything given at the start is private except `PUBLIC`. EDGE_SELFCHECK=1: print what was
replaced in Hermes' modules as JSON (it must be nothing) and exit.

Frames on descriptor 3, both ways: 4 bytes length of the rest, 4 bytes id (both big-endian), JSON. machine/sessiondb/frames.ts
describes the JSON.
"""

import base64
import collections
import ctypes
import errno
import json
import os
import re
import sqlite3
import struct
import subprocess
import sys
import threading
import _posixsubprocess

FD = 3
MAX_FRAME = 16 * 1024 * 1024
MAX_PENDING_STATEMENTS = 128
MAX_PENDING_BYTES = 1024 * 1024
DEFAULT_LAUNCHER = "/opt/edge/confined-exec"


# --- Descriptor 3 ----------------------------------------------------------------------------------------------------


class _Waiter:
    __slots__ = ("lock", "answer", "signalled")

    def __init__(self):
        self.lock = threading.Lock()
        self.lock.acquire()
        self.answer = None
        self.signalled = False


class Channel:
    """Requests and answers of all threads over one descriptor.

    There is no reader thread: of the threads that wait for an answer one, the leader, reads, and hands the others theirs.
    A single caller (the usual case) so never waits for a thread switch.
    """

    def __init__(self, fd):
        os.set_inheritable(fd, False)
        os.set_blocking(fd, True)
        self._fd = fd
        self._state = threading.Lock()
        self._sending = threading.Lock()
        self._waiting = {}
        self._leading = False
        self._failure = None
        self._last_id = 0
        self._last_connection = 0
        self._input = bytearray()
        # Appended to by finalizers, which may run in any thread at any point: a deque needs no lock.
        self._closing = collections.deque()

    def new_connection(self):
        with self._state:
            self._last_connection += 1
            return self._last_connection

    def forget(self, connection):
        """Tells the machine, without waiting, that a connection is gone. May be called by the garbage collector."""
        self._closing.append(connection)
        self._flush_closing()

    def in_forked_child(self):
        """After a fork the stream belongs to the parent alone."""
        self._failure = "the SessionDB channel does not survive a fork"
        os.close(self._fd)

    def request(self, body):
        """Sends one request and waits for its answer (bytes of JSON)."""
        if len(body) + 4 > MAX_FRAME:
            raise sqlite3.DataError(f"SessionDB request of {len(body)} bytes is larger than {MAX_FRAME}")
        waiter = _Waiter()
        with self._state:
            if self._failure:
                raise sqlite3.OperationalError(self._failure)
            self._last_id = self._last_id % 0xFFFFFFFF + 1
            ident = self._last_id
            self._waiting[ident] = waiter
        try:
            with self._sending:
                self._send(ident, body)
            self._flush_closing()
            return self._await(waiter)
        finally:
            with self._state:
                self._waiting.pop(ident, None)

    def _flush_closing(self):
        while self._closing and self._sending.acquire(blocking=False):
            try:
                gone = []
                while self._closing:
                    gone.append(self._closing.popleft())
                if gone and not self._failure:
                    self._send(0, json.dumps({"x": gone}).encode())
            except sqlite3.Error:
                return  # The channel is broken; whoever uses it next is told.
            finally:
                self._sending.release()

    def _send(self, ident, body):
        data = memoryview(struct.pack(">II", len(body) + 4, ident) + body)
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except BaseException as error:
            # Half a frame cannot be taken back.
            self._fail(f"SessionDB channel: {error!r}")
            if isinstance(error, OSError):
                raise sqlite3.OperationalError(self._failure) from None
            raise

    def _await(self, waiter):
        while True:
            with self._state:
                waiter.signalled = False
                if waiter.answer is not None:
                    return waiter.answer
                if self._failure:
                    raise sqlite3.OperationalError(self._failure)
                lead = not self._leading
                self._leading = True
            if not lead:
                waiter.lock.acquire()
                continue
            try:
                while waiter.answer is None:
                    self._deliver()
            except OSError as error:
                self._fail(f"SessionDB channel: {error}")
            finally:
                with self._state:
                    self._leading = False
                    for other in self._waiting.values():
                        if other is not waiter and other.answer is None:
                            self._signal(other)
                            break

    def _deliver(self):
        header = self._read(8)
        size, ident = struct.unpack(">II", header)
        if not 4 <= size <= MAX_FRAME:
            raise OSError(errno.EPROTO, f"frame of {size} bytes")
        body = self._read(size + 4)[8:]
        del self._input[: size + 4]
        with self._state:
            waiter = self._waiting.get(ident)
            if waiter is not None:  # None: its caller was interrupted.
                waiter.answer = bytes(body)
                self._signal(waiter)

    def _read(self, size):
        """The first `size` bytes of the input. They stay there until the whole frame has come (an interrupt loses none)."""
        while len(self._input) < size:
            more = os.read(self._fd, max(65536, size - len(self._input)))
            if not more:
                raise OSError(errno.EPIPE, "closed by the machine")
            self._input += more
        return memoryview(self._input)[:size].tobytes()

    @staticmethod
    def _signal(waiter):
        if not waiter.signalled:
            waiter.signalled = True
            waiter.lock.release()

    def _fail(self, reason):
        with self._state:
            self._failure = self._failure or reason
            for waiter in self._waiting.values():
                self._signal(waiter)


# --- The connection that stands for state.db -------------------------------------------------------------------------

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


def _error(described):
    error = getattr(sqlite3, described["k"])(described["m"])
    if "n" in described:
        error.sqlite_errorname = described["n"]
        error.sqlite_errorcode = getattr(sqlite3, described["n"], None)
    return error


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


_real_connect = sqlite3.connect


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


# --- Programs that Hermes starts -------------------------------------------------------------------------------------

PUBLIC = frozenset(
    """PATH HOME LANG LANGUAGE TZ TERM COLORTERM USER LOGNAME SHELL TMPDIR PWD HERMES_HOME SSL_CERT_FILE SSL_CERT_DIR
    REQUESTS_CA_BUNDLE CURL_CA_BUNDLE GIT_SSL_CAINFO NODE_EXTRA_CA_CERTS""".split()
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|AUTH")
_DOTENV_NAME = re.compile(rb"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=", re.M)


class Environment:
    """Decides by name which variables a started program may have."""

    def __init__(self, given, home):
        listed = given.get("EDGE_PRIVATE_NAMES")
        self._private = frozenset(given if listed is None else listed.split())
        self._dotenv = os.path.join(home, ".env")
        self._seen = None
        self._dotenv_names = frozenset()

    def public(self, environment):
        self._read_dotenv()
        return {name: value for name, value in environment.items() if self._may_pass(name)}

    def _may_pass(self, name):
        if name in PUBLIC or name.startswith("LC_"):
            return True
        if name in self._private or name in self._dotenv_names or name.startswith(("EDGE_", "BUN_")):
            return False
        # execute_code gives its script the socket and the token of the tools' call-back.
        return not (name.startswith("HERMES_") and _SECRET.search(name) and not name.startswith("HERMES_RPC_"))

    def _read_dotenv(self):
        # Read again when it changed: a skill's setup may add a key while Hermes runs.
        try:
            status = os.stat(self._dotenv)
        except FileNotFoundError:
            self._seen, self._dotenv_names = None, frozenset()
            return
        seen = (status.st_ino, status.st_mtime_ns, status.st_size)
        if seen != self._seen:
            with open(self._dotenv, "rb") as file:
                text = file.read(1024 * 1024)
            self._dotenv_names = frozenset(name.decode() for name in _DOTENV_NAME.findall(text))
            self._seen = seen


class Launcher:
    """Starts programs as `confined-exec shell <n> <candidate 1..n> <argv…>`; directly when there is no launcher."""

    def __init__(self, path, environment):
        self._path = path
        self._environment = environment

    def install(self):
        subprocess._USE_POSIX_SPAWN = False
        subprocess._fork_exec = self._fork_exec(_posixsubprocess.fork_exec)
        _posixsubprocess.fork_exec = subprocess._fork_exec
        for module in (os, sys.modules["posix"]):
            module.execve = self._execve
            module.execv = self._execv
            module.posix_spawn = self._posix_spawn
            module.posix_spawnp = self._posix_spawnp
            module.system = self._system

    def _line(self, candidates, arguments):
        return [self._path, "shell", str(len(candidates)), *candidates, *arguments]

    def _public(self, environment):
        return self._environment.public(
            {os.fsdecode(name): value for name, value in (os.environ if environment is None else environment).items()}
        )

    @staticmethod
    def _require(candidates, directory="."):
        """The launcher always starts; a missing program must still be an error here, as it is without a launcher."""
        problem = errno.ENOENT
        for candidate in candidates:
            path = os.path.join(os.fsdecode(directory), os.fsdecode(candidate))
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return
            if os.path.lexists(path):
                problem = errno.EACCES
        name = os.fsdecode(candidates[0] if len(candidates) == 1 else os.path.basename(candidates[0]))
        raise OSError(problem, os.strerror(problem), name)

    def _fork_exec(self, real):
        def fork_exec(args, executables, close_fds, keep, cwd, env, *rest):
            given = os.environb if env is None else dict(entry.split(b"=", 1) for entry in env)
            public = self._environment.public({os.fsdecode(name): value for name, value in given.items()})
            env = [os.fsencode(name) + b"=" + value for name, value in public.items()]
            if self._path:
                if cwd is None or os.path.isdir(cwd):  # A missing cwd is reported by the child, first, as always.
                    self._require(executables, "." if cwd is None else cwd)
                args = [os.fsencode(part) for part in self._line(executables, args)]
                executables = (os.fsencode(self._path),)
            return real(args, executables, close_fds, keep, cwd, env, *rest)

        return fork_exec

    def _start(self, real, path, arguments, environment, **options):
        if not self._path:
            return real(path, arguments, self._public(environment), **options)
        if isinstance(path, int):
            raise PermissionError(errno.EPERM, "a program in a descriptor cannot be confined")
        self._require([path])
        return real(self._path, self._line([path], arguments), self._public(environment), **options)

    def _execve(self, path, argv, env, _real=os.execve):
        self._start(_real, path, argv, env)

    def _execv(self, path, argv, _real=os.execve):
        self._start(_real, path, argv, None)

    def _posix_spawn(self, path, argv, env, *, _real=os.posix_spawn, **options):
        return self._start(_real, path, argv, env, **options)

    def _posix_spawnp(self, path, argv, env, *, _real=os.posix_spawn, **options):
        found = [path] if os.path.dirname(path) else [os.path.join(place, path) for place in os.get_exec_path(env)]
        usable = [place for place in found if os.path.isfile(place) and os.access(place, os.X_OK)]
        self._require(found)
        return self._start(_real, usable[0], argv, env, **options)

    def _system(self, command):
        status = subprocess.call(["/bin/sh", "-c", command])
        return status << 8 if status >= 0 else -status


# --- Start -----------------------------------------------------------------------------------------------------------

GUARDED = ("acp_adapter", "agent", "run_agent", "toolsets")


def replaced_in_hermes():
    """Every attribute of Hermes' guarded modules whose code does not come from an installed file of its own."""
    import importlib
    import sysconfig

    for name in ("acp_adapter.entry", "acp_adapter.server", "run_agent", "toolsets", "agent.conversation_loop"):
        importlib.import_module(name)
    paths = sysconfig.get_paths()
    installed = tuple({paths[kind] + os.sep for kind in ("purelib", "platlib", "stdlib", "platstdlib")})
    found, seen = [], set()

    def look(owner, label, depth):
        for name, value in list(vars(owner).items()):
            value = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
            code = getattr(value, "__code__", None)
            file = getattr(code, "co_filename", None)
            # "<…>" is code that the standard library generates, as for dataclasses; ours has a file.
            if file is not None and not file.startswith((*installed, "<")):
                found.append({"attribute": f"{label}.{name}", "file": file})
            if isinstance(value, type) and depth < 4 and value not in seen and value.__module__.split(".")[0] in GUARDED:
                seen.add(value)
                look(value, f"{label}.{name}", depth + 1)

    modules = [name for name in list(sys.modules) if name.split(".")[0] in GUARDED]
    for name in modules:
        module = sys.modules[name]
        if not (getattr(module, "__file__", None) or "").startswith(installed):
            found.append({"attribute": name, "file": getattr(module, "__file__", None)})
        look(module, name, 0)
    return {"modules": len(modules), "replaced": found}


def make_not_dumpable():
    """No program of the same user may read this process' environment and memory in /proc, or trace it."""
    PR_SET_DUMPABLE = 4
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        sys.exit(f"start.py: prctl(PR_SET_DUMPABLE): {os.strerror(ctypes.get_errno())}")


def main():
    make_not_dumpable()
    home = os.environ.get("HERMES_HOME")
    if not home:
        sys.exit("start.py: HERMES_HOME is not set")
    try:
        os.fstat(FD)
    except OSError:
        sys.exit(f"start.py: descriptor {FD}, the machine channel, is not open")
    channel = Channel(FD)
    os.register_at_fork(after_in_child=channel.in_forked_child)
    replace_connect(channel, home)
    launcher = os.environ.get("EDGE_LAUNCHER") or (DEFAULT_LAUNCHER if os.path.exists(DEFAULT_LAUNCHER) else None)
    Launcher(launcher, Environment(dict(os.environ), home)).install()
    sys.argv[0] = "hermes-acp"
    if os.environ.get("EDGE_SELFCHECK") == "1":
        print(json.dumps(replaced_in_hermes()))
        return 0
    from acp_adapter.entry import main as hermes_acp

    return hermes_acp()


if __name__ == "__main__":
    sys.exit(main())
