"""What the ledger is told: each program that Hermes starts, with its arguments, and how it ended (ADR-046 §6).

Ends are seen where Python itself sees them, in the waits of the `os` module: no process is waited for by anybody else, and
none is between Hermes and its program. A program that nobody waits for ends, for the ledger, with its holder.
"""

import functools
import itertools
import json
import os
import socket
import subprocess
import sys
import threading
import time

MAX_TEXT = 16_000
MAX_ARGUMENTS = 1000
_MAX_MESSAGE = 128 * 1024


def _cut(parts):
    """The parts as texts of 16,000 bytes in all at most; what is missing is said."""
    parts, room, texts = list(parts), MAX_TEXT, []
    for part in parts[:MAX_ARGUMENTS]:
        data = os.fsencode(part)
        if len(data) <= room:
            texts.append(data.decode("utf-8", "backslashreplace"))
            room -= len(data)
        else:
            texts.append(f"{data[:room].decode('utf-8', 'ignore')}… [cut: {room} of {len(data)} bytes]")
            room = 0
    if len(parts) > MAX_ARGUMENTS:
        texts.append(f"… [{len(parts) - MAX_ARGUMENTS} more]")
    return texts


def _now():
    return int(time.time() * 1000)


class Executions:
    """Notes starts and ends.

    `tell` takes an event and, where a forked process is about to become the program, its process number. It must neither
    wait nor fail: finalizers wait for processes too. A forked process has no part in the machine channel: it tells its
    parent, who tells the machine.
    """

    def __init__(self, tell):
        self._tell = tell
        self._count = itertools.count(1)
        # By process: what its end belongs to. Only ever changed by one call at a time, which needs no lock.
        self._running = {}
        self._forked = {}
        self._hearing = threading.RLock()

    def install(self):
        waitpid = os.waitpid
        for module in (os, sys.modules["posix"]):
            module.waitpid = self._waiting(waitpid, lambda result: (result[0], result[1]))
            module.wait = self._waiting(module.wait, lambda result: (result[0], result[1]))
            module.wait3 = self._waiting(module.wait3, lambda result: (result[0], result[1]))
            module.wait4 = self._waiting(module.wait4, lambda result: (result[0], result[1]))
            module.waitid = self._waiting_id(module.waitid)
            module.fork = self._forking(module.fork, lambda result: result)
            module.forkpty = self._forking(module.forkpty, lambda result: result[0])
        # subprocess keeps a reference of its own for the time when the interpreter ends.
        poll = subprocess.Popen._internal_poll
        poll.__defaults__ = tuple(os.waitpid if value is waitpid else value for value in poll.__defaults__ or ())
        kept = getattr(subprocess, "_del_safe", None)
        if getattr(kept, "waitpid", None) is waitpid:
            kept.waitpid = os.waitpid

    def started(self, pid, program, arguments, directory, own=False):
        """Notes a program that runs as `pid`; `own`: as which this process is about to go on. Answers what its end needs."""
        ident = (os.getpid() << 30) + next(self._count)
        try:
            place = os.getcwdb() if directory is None else os.path.abspath(os.fsencode(directory))
        except OSError:
            place = b""  # Removed.
        texts = _cut(arguments)
        event = {"i": ident, "a": texts, "f": _cut([program])[0], "d": _cut([place])[0], "t": _now()}
        self._tell(event, pid if own else None)
        self._running[pid] = ident
        return ident

    def failed(self, pid, ident):
        """This process did not become the program after all."""
        self._running.pop(pid, None)
        self._tell({"i": ident, "x": 1}, pid)

    def hear_children(self):
        """Passes on what forked processes have told. Waits for no process."""
        if not self._forked:
            return
        with self._hearing:
            self._hear_children()

    def _hear_children(self):
        for pid, ours in list(self._forked.items()):
            while True:
                try:
                    message = ours.recv(_MAX_MESSAGE, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    break
                except OSError:
                    message = b""
                if not message:  # It ended, or became the program.
                    self._forked.pop(pid, None)
                    ours.close()
                    break
                event, own = json.loads(message)
                if own is not None and "x" in event:
                    self._running.pop(own, None)
                elif own is not None:
                    self._running[own] = event["i"]
                self._tell(event, None)

    def _ended(self, pid, status):
        if os.WIFEXITED(status):
            self._over(pid, {"c": os.WEXITSTATUS(status)})
        elif os.WIFSIGNALED(status):
            self._over(pid, {"s": os.WTERMSIG(status)})

    def _over(self, pid, how):
        ident = self._running.pop(pid, None)
        if ident is not None:
            self._tell({"i": ident, **how, "t": _now()}, None)

    def _waiting(self, real, ended):
        @functools.wraps(real)
        def wait(*args, **options):
            result = real(*args, **options)
            self.hear_children()
            pid, status = ended(result)
            if pid:
                self._ended(pid, status)
            return result

        return wait

    def _waiting_id(self, real):
        @functools.wraps(real)
        def waitid(kind, ident, options):
            result = real(kind, ident, options)
            self.hear_children()
            if result is not None and not options & os.WNOWAIT:
                if result.si_code == os.CLD_EXITED:
                    self._over(result.si_pid, {"c": result.si_status})
                elif result.si_code in (os.CLD_KILLED, os.CLD_DUMPED):
                    self._over(result.si_pid, {"s": result.si_status})
            return result

        return waitid

    def _forking(self, real, pid_of):
        @functools.wraps(real)
        def fork():
            try:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            except OSError:
                # No descriptor left: what the child starts, if anything, is not known.
                self._tell(None, None)
                return real()
            next(self._count)
            result = real()
            if pid_of(result) == 0:
                ours.close()
                self._in_child(theirs)
            else:
                theirs.close()
                self._forked[pid_of(result)] = ours
            return result

        return fork

    def _in_child(self, parent):
        for other in self._forked.values():
            other.close()
        self._running, self._forked = {}, {}
        self._hearing = threading.RLock()  # Another thread of the parent may have held it.
        self._keep_open(parent.fileno())

        def tell(event, own):
            try:
                parent.send(json.dumps([event, own]).encode(), socket.MSG_DONTWAIT)
            except OSError:
                pass  # The parent is gone, or hears nothing: so does the machine.

        self._tell = tell

    @staticmethod
    def _keep_open(kept):
        """Whoever forks closes all that its program must not have: this is closed when the program is executed."""
        closerange = os.closerange

        def close(low, high, /):
            if low <= kept < high:
                closerange(low, kept)
                low = kept + 1
            closerange(low, high)

        for module in (os, sys.modules["posix"]):
            module.closerange = close
