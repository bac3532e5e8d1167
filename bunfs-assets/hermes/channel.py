"""Descriptor 3: requests to the machine and its answers.

Frames, both ways: 4 bytes length of the rest, 4 bytes id (both big-endian), JSON. machine/sessiondb/frames.ts describes the
JSON.
"""

import collections
import errno
import json
import os
import socket
import sqlite3
import struct
import threading

MAX_FRAME = 16 * 1024 * 1024
# Events that wait until the machine takes them, and those of one frame.
MAX_EVENTS = 512
EVENTS_AT_ONCE = 32


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
        # The same descriptor, for sending without waiting; made when it is needed.
        self._socket = None
        self.before_request = lambda: None
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
        self._events = collections.deque()
        self._lost_events = 0
        # The rest of a frame of events that did not fit: nothing else may be sent before it.
        self._unsent = b""

    def new_connection(self):
        with self._state:
            self._last_connection += 1
            return self._last_connection

    def forget(self, connection):
        """Tells the machine, without waiting, that a connection is gone. May be called by the garbage collector."""
        self._closing.append(connection)
        self._flush()

    def tell(self, event):
        """Tells the machine of an execution, without waiting. What does not fit is counted, and that is told.

        May be called by the garbage collector. An event of None is one that could not be told.
        """
        if len(self._events) >= MAX_EVENTS:
            self._flush()
        if event is None or len(self._events) >= MAX_EVENTS:
            self._lost_events += 1
        else:
            self._events.append(event)
        self._flush()

    def in_forked_child(self):
        """After a fork the stream belongs to the parent alone."""
        self._failure = "the SessionDB channel does not survive a fork"
        if self._socket is None:
            os.close(self._fd)
        else:
            self._socket.close()

    def request(self, body):
        """Sends one request and waits for its answer (bytes of JSON)."""
        if len(body) + 4 > MAX_FRAME:
            raise sqlite3.DataError(f"SessionDB request of {len(body)} bytes is larger than {MAX_FRAME}")
        self.before_request()
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
            self._flush()
            return self._await(waiter)
        finally:
            with self._state:
                self._waiting.pop(ident, None)

    def _flush(self):
        """Sends what has no answer, unless another thread is sending: that one does it then."""
        while (self._closing or self._events or self._lost_events or self._unsent) and self._sending.acquire(blocking=False):
            try:
                gone = []
                while self._closing:
                    gone.append(self._closing.popleft())
                if self._failure:
                    self._events.clear()
                    self._lost_events = 0
                    return
                if gone:
                    self._send(0, json.dumps({"x": gone}).encode())
                if not self._send_events():
                    return
            except sqlite3.Error:
                return  # The channel is broken; whoever uses it next is told.
            finally:
                self._sending.release()

    def _send_events(self):
        """False when the machine takes no more now: the rest goes before what is sent next."""
        while self._unsent or self._events or self._lost_events:
            if not self._unsent:
                self._unsent = self._next_events()
            try:
                self._socket = self._socket or socket.socket(fileno=self._fd)
                self._unsent = self._unsent[self._socket.send(self._unsent, socket.MSG_DONTWAIT) :]
            except OSError:
                return False  # No room now, or broken: whoever uses the channel next is told that.
        return True

    def _next_events(self):
        lost, self._lost_events = self._lost_events, 0
        events = [{"l": lost}] if lost else []
        while self._events and len(events) < EVENTS_AT_ONCE:
            events.append(self._events.popleft())
        return self._frame(0, json.dumps({"p": events}).encode())

    @staticmethod
    def _frame(ident, body):
        return struct.pack(">II", len(body) + 4, ident) + body

    def _send(self, ident, body):
        data = memoryview(self._unsent + self._frame(ident, body))
        self._unsent = b""
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
