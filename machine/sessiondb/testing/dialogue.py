"""Does the same things with a local SQLite file and with SessionDB over descriptor 3, and prints both outcomes as JSON.

Usage: python -I dialogue.py start.py (with HERMES_HOME set and descriptor 3 served)
"""

import importlib.util
import json
import os
import sqlite3
import sys
import threading
import time
from pathlib import Path

spec = importlib.util.spec_from_file_location("edge_start", sys.argv[1])
start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(start)

import hermes_state  # noqa: E402

home = Path(os.environ["HERMES_HOME"])
channel = start.Channel(3)
start.replace_connect(channel, str(home))
VOLATILE = ("timestamp", "started_at", "ended_at", "first_seen", "last_seen", "session_started", "last_active", "acquired_at", "expires_at")


def plain(value):
    """Without what differs between two runs by nature."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in VOLATILE}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def attempt(action):
    try:
        return plain(action())
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def session_database(path):
    """Hermes' own use: what every method says, in order."""
    db = hermes_state.SessionDB(path)
    said = []

    def say(action):
        said.append(attempt(action))

    say(lambda: db.create_session("s1", "acp", model="m", model_config={"cwd": "/x"}))
    say(lambda: db.get_session("s1"))
    for role, content in (("user", "naïve ☃ \u0000 'quoted' \"double\""), ("assistant", "teal is a colour 水"), ("user", "")):
        say(lambda: db.append_message("s1", role=role, content=content, finish_reason="stop", token_count=2**60))
    say(lambda: db.append_message("s1", role="assistant", content=None, tool_calls=[{"id": "c", "function": {"name": "n"}}]))
    hard = "\r\n\r\u2028\ufeff e\u0301 é 👩‍👩‍👧 עברית <<< \\ \x00 \x7f \t"
    say(lambda: db.append_message("s1", role="user", content=hard * 40_000, api_content=hard))
    say(lambda: [message.get("content") == hard * 40_000 for message in db.get_messages("s1")])
    say(lambda: db.append_message("missing", role="user", content="no such session"))
    say(lambda: [str(message)[:300] for message in map(plain, db.get_messages("s1"))])
    say(lambda: [str(message)[:200] for message in map(plain, db.get_messages_as_conversation("s1"))])
    say(lambda: db.search_messages("teal"))
    say(lambda: db.search_messages("水 colour"))
    say(lambda: db.search_messages('"unbalanced'))
    say(lambda: db.update_token_counts("s1", input_tokens=5, output_tokens=7, model="m", billing_provider="p", api_call_count=1, estimated_cost_usd=0.1))
    say(lambda: db.set_session_title("s1", "A title"))
    say(lambda: db.create_session("s2", "acp", parent_session_id="s1"))
    say(lambda: db.set_session_title("s2", "A title"))
    say(lambda: db.get_session_title("s2"))
    say(lambda: db.try_acquire_compression_lock("s1", "me"))
    say(lambda: db.get_compression_lock_holder("s1"))
    say(lambda: db.release_compression_lock("s1", "me"))
    say(lambda: db.archive_and_compact("s1", [{"role": "user", "content": "short"}]))
    say(lambda: [str(message)[:300] for message in map(plain, db.get_messages("s1", include_inactive=True))])
    say(lambda: db.replace_messages("s2", [{"role": "user", "content": str(n)} for n in range(40)]))
    say(lambda: db.message_count("s2"))
    say(lambda: db.list_sessions_rich())
    say(lambda: db.end_session("s2", "done"))
    say(lambda: db.get_session("s2"))
    say(lambda: db.delete_session("s2"))
    say(lambda: db.session_count())
    say(lambda: db.optimize_fts())
    db.close()
    say(lambda: db.get_session("s1"))
    return said


def connection(path, isolation_level):
    """The interface of sqlite3 itself."""
    said = []

    def say(action):
        said.append(attempt(action))

    c = sqlite3.connect(str(path), isolation_level=isolation_level, timeout=1.0, check_same_thread=False)
    mine = f"c{isolation_level}"
    new = "INSERT INTO sessions (id, source, started_at) VALUES (?, ?, ?)"
    mark = "UPDATE sessions SET title = ? WHERE id = ?"
    say(lambda: c.execute("PRAGMA foreign_keys=ON").fetchall())
    say(lambda: c.execute(new, (mine, "acp", 1.0)).rowcount)
    say(lambda: c.in_transaction)
    say(lambda: c.commit())
    say(lambda: [c.in_transaction, c.execute(new, (mine, "acp", 1.0)).rowcount])
    say(lambda: [c.in_transaction, c.rollback(), c.in_transaction])
    say(lambda: c.execute("SELECT id, 1 AS one, 2.0 AS two, NULL AS none, typeof(started_at) FROM sessions WHERE id = ?", (mine,)).fetchone())
    say(lambda: [str(n) for n in c.execute("SELECT ?, ?, -9007199254740993, 1e300", (2**63 - 1, -(2**53))).fetchone()])
    say(lambda: c.execute("SELECT x'00ff' AS bytes").fetchone()[0].hex())
    say(lambda: [d[0] for d in c.execute("SELECT id, started_at AS at FROM sessions").description])
    say(lambda: c.execute("SELECT id FROM sessions WHERE id = :id", {"id": mine}).fetchall())
    c.row_factory = sqlite3.Row

    def row():
        one = c.execute("SELECT id, title AS Title, started_at AS at FROM sessions WHERE id = ?", (mine,)).fetchone()
        return [isinstance(one, sqlite3.Row), one.keys(), dict(one), one["title"], one[0], one[-1], len(one), "id" in one.keys(), list(one), one["nope"]]

    say(row)
    c.row_factory = None
    say(lambda: c.execute("SELECT nope FROM sessions"))
    say(lambda: c.execute("SELECT 1; SELECT 2") and None)
    say(lambda: c.execute("INSERT INTO messages (session_id, role, timestamp) VALUES (?, ?, ?)", (mine, "user", 1)).lastrowid is not None)
    say(lambda: c.commit())
    say(lambda: c.execute(mark, ("lone \ud800 surrogate", mine)))
    say(lambda: c.execute(mark, (2**63, mine)))
    say(lambda: [c.rollback(), c.in_transaction])

    def failing_block():
        with c:
            c.execute("BEGIN IMMEDIATE")
            c.execute(mark, ("never", mine))
            raise ValueError("inside")

    say(failing_block)
    say(lambda: c.execute("SELECT title FROM sessions WHERE id = ?", (mine,)).fetchone())

    def late_failure():
        with c:
            c.execute("BEGIN")
            c.execute(mark, ("kept?", mine))
            c.execute(new, (mine, "acp", 1.0))

    say(late_failure)
    say(lambda: [c.in_transaction, c.execute("SELECT title FROM sessions WHERE id = ?", (mine,)).fetchone()])
    say(lambda: [c.execute("BEGIN") and None, c.execute("BEGIN")])
    say(lambda: [c.in_transaction, c.rollback(), c.in_transaction])
    many = "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)"
    say(lambda: c.executemany(many, [(mine, "user", str(n), n) for n in range(300)]).rowcount)
    say(lambda: c.commit())
    say(lambda: c.execute("SELECT count(*), sum(timestamp) FROM messages WHERE session_id = ?", (mine,)).fetchall())
    cursor = c.execute("SELECT content FROM messages WHERE session_id = ? AND content IS NOT NULL ORDER BY id", (mine,))
    say(lambda: [cursor.fetchone(), cursor.fetchmany(2), len(cursor.fetchall()), cursor.fetchone()])

    def reused():
        one = c.cursor()
        one.execute("BEGIN")
        one.execute(many, (mine, "user", "reused", 1))
        one.execute("UPDATE messages SET content = 'changed' WHERE session_id = ?", (mine,))
        first = [one.rowcount, one.lastrowid is not None, one.description, one.fetchall()]
        kept = one.lastrowid
        one.execute("SELECT max(id) = ? FROM messages", (kept,))
        second = [one.rowcount, one.fetchall()]
        one.execute(mark, ("x", mine))
        one.execute("ROLLBACK")
        return [first, second, c.in_transaction, one.execute(mark, ("y", "nobody")).rowcount, c.rollback()]

    say(reused)
    say(lambda: c.execute("DELETE FROM messages WHERE session_id = ?", (mine,)).rowcount)
    say(lambda: c.commit())
    say(lambda: c.close())
    say(lambda: c.execute("SELECT 1"))
    return said


def waiting(path):
    """A connection that waits for the write lock leaves the others alone, and gets it when it is free."""
    a, b, reader = (sqlite3.connect(str(path), isolation_level=None, check_same_thread=False) for _ in range(3))
    order = []
    a.execute("BEGIN IMMEDIATE")
    a.execute("UPDATE sessions SET title = ? WHERE id = ?", ("from a", "s1")).rowcount

    def second():
        b.execute("BEGIN IMMEDIATE")
        b.execute("UPDATE sessions SET title = ? WHERE id = ?", ("from b", "s1"))
        b.commit()
        order.append("b")

    thread = threading.Thread(target=second)
    thread.start()
    time.sleep(0.3)
    order.append(["read", reader.execute("SELECT count(*) FROM sessions WHERE title LIKE 'from%'").fetchone()[0]])
    a.commit()
    order.append("a")
    thread.join()
    return [sorted(order, key=str), reader.execute("SELECT title FROM sessions WHERE id = 's1'").fetchone()]


outcome = {}
for name, path in (("local", home / "local.db"), ("remote", home / "state.db")):
    outcome[name] = {
        "hermes": session_database(path),
        "manual": connection(path, None),
        "automatic": connection(path, ""),
        "waiting": attempt(lambda: waiting(path)),
    }
outcome["files"] = sorted(os.listdir(home))
print(json.dumps(outcome))
