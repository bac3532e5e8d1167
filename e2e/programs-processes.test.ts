/** Programs that share files, memory, terminals and sockets at the same time, in a holder. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { holderHas, testWith } from './harness/programs.ts';
import { sameAsPlainDisk, ToolShell } from './harness/tool-shell.ts';

const limitMs = 200_000;
let shell: ToolShell;
beforeAll(async () => {
  shell = await ToolShell.start();
}, limitMs);
afterAll(async () => {
  await shell?.[Symbol.asyncDispose]();
}, limitMs);

testWith(holderHas('sqlite3'))(
  'SQLite in WAL mode: two writers at once, a reader beside them, a crash in the middle, the shell',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'sqlite',
      `
      cat > write.py <<'END'
import sqlite3, sys
name, rows, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
database = sqlite3.connect('x.db', timeout=60, isolation_level=None)
for number in range(rounds):
    database.execute('BEGIN IMMEDIATE')
    database.executemany('INSERT INTO t VALUES(?, ?, ?)', [(name, number, 'x' * 1000)] * rows)
    if name == 'crash' and number == 7: open('reached', 'w'); import time; time.sleep(60)
    database.execute('COMMIT')
END
      cat > read.py <<'END'
import os, sqlite3
database = sqlite3.connect('x.db', timeout=60)
while not os.path.exists('written'):
    counts = [database.execute('SELECT w, i, count(*) FROM t WHERE w IN (?, ?) GROUP BY w, i', ('a', 'b')).fetchall()]
    assert all(count == 3 for row in counts for _, _, count in row), counts
print('every transaction was seen whole')
END
      sqlite3 x.db 'PRAGMA journal_mode=WAL; CREATE TABLE t(w, i, b); CREATE INDEX n ON t(w, i);'
      python3 read.py & reader=$!
      python3 write.py a 3 100 & one=$!
      python3 write.py b 3 100 & two=$!
      wait $one; wait $two; touch written; wait $reader
      sqlite3 x.db 'SELECT w, count(*), sum(i) FROM t GROUP BY w; PRAGMA integrity_check;'
      (python3 write.py crash 3 20 & crashing=$!; until [ -e reached ]; do sleep 0.1; done; kill -9 $crashing; wait $crashing) 2> /dev/null || true
      ls x.db*; sqlite3 x.db 'SELECT w, count(*) FROM t GROUP BY w; PRAGMA integrity_check; PRAGMA wal_checkpoint(TRUNCATE);'
      cp x.db copy.db && sqlite3 copy.db 'PRAGMA integrity_check' && sqlite3 x.db '.backup b.db' 'VACUUM' && sqlite3 b.db 'SELECT count(*) FROM t'
      for mode in DELETE TRUNCATE PERSIST; do sqlite3 x.db "PRAGMA journal_mode=$mode; INSERT INTO t VALUES('$mode', 1, 1);"; done
      sqlite3 x.db '.mode csv' '.import write.py lines' 'SELECT count(*) FROM lines' 'PRAGMA mmap_size=10000000' 'SELECT sum(length(b)) FROM t' 2>&1 | grep -v expected; sqlite3 x.db .dump | sort | cksum; ls x.db*`,
    );
    expect(output).toContain('every transaction was seen whole\na|300|14850\nb|300|14850\nok\n');
    expect(output).toContain('crash|21\nok\n');
  },
  limitMs,
);

testWith(holderHas('flock'))(
  'flock and lockf keep processes out, appends of many land whole',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'locks',
      `
      (flock 9; touch held; echo first >> order; until [ -e tried ]; do sleep 0.05; done; echo second >> order) 9> lock &
      until [ -e held ]; do sleep 0.05; done
      flock -n lock true || echo busy; flock -sn lock true || echo busy for readers; flock -w 0.2 lock true || echo still busy; touch tried
      flock lock sh -c 'echo third >> order'; wait; cat order; flock -s lock flock -sn lock echo shared
      cat > range.py <<'END'
import fcntl, os, sys
f = open('ranges', 'r+b')
fcntl.lockf(f, fcntl.LOCK_EX, 10, 0)
pid = os.fork()
if pid == 0:
    g = open('ranges', 'r+b')
    fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
    try: fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5); print('overlaps')
    except BlockingIOError: print('refused')
    sys.stdout.flush(); os._exit(0)
os.waitpid(pid, 0); open('ranges').close()
END
      touch ranges; python3 range.py
      for writer in 1 2 3 4; do (for line in $(seq 100); do echo "writer $writer line $line" >> log; done) & done; wait; sort -u log | wc -l; wc -l < log
      for number in $(seq 20); do (flock 9; echo $(($(cat n 2> /dev/null || echo 0) + 1)) > n) 9> lock & done; wait; cat n`,
    );
    expect(output).toStartWith(
      'busy\nbusy for readers\nstill busy\nfirst\nsecond\nthird\nshared\nrefused\n400\n400\n20\n',
    );
  },
  limitMs,
);

testWith(holderHas('inotifywait'))(
  'inotify tells what other processes of the holder do',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'inotify',
      `
      mkdir w; touch events
      inotifywait -qm -e create,modify,delete,moved_from,moved_to,close_write,attrib --format '%e %f' w > events & watcher=$!
      until grep -q . events; do touch w/ready; sleep 0.1; done
      echo 1 > w/a; chmod 600 w/a; mv w/a w/b; rm w/b; mkdir w/d; echo end > w/end
      until grep -q 'CLOSE_WRITE,CLOSE end' events; do sleep 0.1; done
      kill $watcher; grep -v ready events`,
    );
    expect(output).toContain('MOVED_FROM a\nMOVED_TO b\nDELETE b\nCREATE,ISDIR d\n');
  },
  limitMs,
);

testWith(holderHas('script'))(
  'pseudo-terminals: script, job control, Ctrl-C, Ctrl-Z, end of input, window size',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'pty',
      String.raw`
      export TERM=xterm
      script -qec 'tty | cut -d/ -f1-3; stty cols 77; stty size; test -t 0 && echo it is a terminal; exit 5' typescript || echo "code $?"; tr -d '\r' < typescript | grep -c terminal
      cat > talk.py <<'END'
import fcntl, os, pty, select, struct, sys, termios, time
pid, fd = pty.fork()
if pid == 0: os.execvp('bash', ['bash', '--norc', '--noprofile', '-i'])
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 33, 99, 0, 0))
seen = b''
def expect(word):
    global seen
    end = time.time() + 30
    while word not in seen:
        if not select.select([fd], [], [], max(0, end - time.time()))[0]: sys.exit('no %r in %r' % (word, seen))
        seen += os.read(fd, 4096)
    print('saw', word.decode()); seen = seen[seen.index(word) + len(word):]
def say(text): os.write(fd, text.encode())
say('PS1=; set +o emacs; stty -echo; echo go$((1+1))\n'); expect(b'go2')
say('stty size\n'); expect(b'33 99')
say('tty | grep -c pts; ps -o stat= -p $$ | cut -c1\n'); expect(b'1\r\nS')
say('sleep 100; echo after\n'); time.sleep(0.5); say('\x1a'); expect(b'Stopped')
say('jobs; bg\n'); expect(b'sleep 100 &'); say('jobs\n'); expect(b'Running')
say('kill %1; wait %1; echo code $?\n'); expect(b'code 143')
say('sleep 100; echo code $?\n'); time.sleep(0.5); say('\x03'); say('echo next\n'); expect(b'next')
say('cat; echo cat ended\n'); time.sleep(0.5); say('typed\n'); expect(b'typed'); say('\x04'); expect(b'cat ended')
say('trap "echo window" WINCH; sleep 3 & disown; echo quiet\n'); expect(b'quiet')
fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack('HHHH', 44, 88, 0, 0)); say('stty size\n'); expect(b'44 88')
say('python3 -c "import os; print(os.get_terminal_size(), os.isatty(0), os.tcgetpgrp(0) == os.getpgrp())"\n'); expect(b'columns=88, lines=44) True True')
say('exit 7\n'); print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
END
      python3 talk.py`,
    );
    expect(output).toContain('it is a terminal');
    expect(output).toEndWith('True True\n7\n');
  },
  limitMs,
);

test(
  "Hermes' own terminal with pty: a program that wants a terminal gets one, and answers",
  async () => {
    const command = `python3 -c "
import os, sys, time
print(os.isatty(0), os.ttyname(0).startswith('/dev/pts/'), flush=True)
print('heard', input('say: '), flush=True)
time.sleep(1) # Hermes reads what is written in the moment of an end, or does not.
"`;
    const started = JSON.parse((await shell.tools([['terminal', { command, background: true, pty: true }]]))[0]!) as {
      session_id: string;
    };
    const session = { session_id: started.session_id };
    const [, , log] = await shell.tools([
      ['process', { action: 'submit', data: 'something', ...session }],
      ['process', { action: 'wait', timeout: 30, ...session }],
      ['process', { action: 'log', ...session }],
    ]);
    expect(log).toContain('True True');
    expect(log).toContain('heard something');
  },
  limitMs,
);

testWith(holderHas('curl'))(
  'a server of one tool answers another one: loopback, a unix socket',
  async () => {
    const { output, exitCode } = await shell.run(
      'server',
      String.raw`
      echo served > index.html
      cat > serve.py <<'END'
import http.server, os, socket, threading
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
unix = socket.socket(socket.AF_UNIX); unix.bind('s'); unix.listen()
open('port.tmp', 'w').write(str(server.server_port)); os.rename('port.tmp', 'port')
connection, _ = unix.accept(); connection.recv(1000); connection.sendall(b'HTTP/1.0 200 OK\r\n\r\nby socket'); connection.close()
END
      python3 serve.py 2> log & server=$!
      until [ -e port ]; do sleep 0.1; done
      curl -sS "http://127.0.0.1:$(cat port)/"; curl -sS "http://localhost:$(cat port)/none" -o /dev/null -w '%{http_code}\n'
      curl -sS -r 0-2 "http://127.0.0.1:$(cat port)/index.html" -o part && cat part; curl -sS --unix-socket s http://x/; echo; wait $server; stat -c %F s; echo ended`,
    );
    expect({ output, exitCode }).toEqual({
      output: 'served\n404\nserved\nby socket\nsocket\nended\n',
      exitCode: 0,
    });
  },
  limitMs,
);

testWith(holderHas('ssh-keygen'), holderHas('jq'), holderHas('openssl'))(
  'ssh-keygen, jq, openssl, gzip, base64, cksum',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'keys',
      `
      ssh-keygen -q -t ed25519 -N '' -C c -f key && stat -c '%n %a' key key.pub && ssh-keygen -y -f key | cut -d' ' -f1 && chmod 644 key && ! ssh-keygen -y -f key > said 2>&1 && grep -c 'UNPROTECTED' said
      seq 1000 | jq -sc '{sum: add, last: last}' | tee j && jq -r .sum j && jq '.sum = 1' j > k && mv k j && cat j
      seq 100000 > n && gzip -kn n && cksum n.gz && gunzip -c n.gz | cmp - n && xz -k n 2> /dev/null && xz -dc n.xz | cmp - n && base64 n | base64 -d | cmp - n && sha256sum n | tee sums && sha256sum -c sums
      openssl enc -aes-256-cbc -pbkdf2 -k k -in n -out e && openssl enc -d -aes-256-cbc -pbkdf2 -k k -in e | cmp - n && openssl rand -out r 1000 && stat -c %s r`,
    );
    expect(output).toContain('n: OK\n1000\n');
  },
  limitMs,
);
