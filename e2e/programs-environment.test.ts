/** What a tool finds around it: who it is, where it may write, locale, time, names, limits, and what the system tells of itself. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { holderHas, testWith } from './harness/programs.ts';
import { ToolShell } from './harness/tool-shell.ts';

const limitMs = 120_000;
let shell: ToolShell;
beforeAll(async () => {
  shell = await ToolShell.start();
}, limitMs);
afterAll(async () => {
  await shell?.[Symbol.asyncDispose]();
}, limitMs);

async function lines(script: string): Promise<string[]> {
  const { output, exitCode } = await shell.run('environment', script);
  expect(exitCode, output).toBe(0);
  return output.trim().split('\n');
}

test(
  'it is an ordinary user with a home and temporary directories, and nothing else to write to',
  async () => {
    const found = await lines(String.raw`
      whoami; id -u; id -gn; getent passwd agent | cut -d: -f6,7; echo "$HOME $TMPDIR $USER $SHELL $TERM $LANG"; umask
      echo ~; (cd && echo x > .config-file && mkdir -p .cache/x .local/bin) && mktemp -d | cut -d/ -f1-2; echo x > /var/tmp/x && rm /var/tmp/x && echo x > /dev/shm/x && rm /dev/shm/x && echo written
      for place in / /usr /usr/local/bin /etc /opt /var /root /dev; do (echo x > $place/probe) 2> /dev/null && echo "wrote $place"; done; [ -w /workspace ] && [ -w /artifacts ] && echo both
      df -h . | tail -1 | awk '{ print $1, $6 }'; stat -f -c %T . | tr -d '\n'; echo; pwd -P`);
    expect(found).toEqual([
      ...[
        'agent',
        '1000',
        'agent',
        '/tmp/home:/bin/bash',
        '/tmp/home /tmp agent /bin/bash xterm-256color C.UTF-8',
        '0022',
      ],
      ...['/tmp/home', '/tmp', 'written', 'both', 'edge /workspace', 'fuseblk', '/workspace/environment'],
    ]);
  },
  limitMs,
);

test(
  'text is UTF-8, time is the host’s, and names, ports, types and terminals are known',
  async () => {
    const zone = new Intl.DateTimeFormat('en', { timeZoneName: 'longOffset', hour: 'numeric' });
    const found = await lines(String.raw`
      printf '\303\251\n' | wc -m; printf '\303\251' | grep -c '^.$'; locale charmap; python3 -c 'import sys, locale; print(sys.getfilesystemencoding(), sys.stdout.encoding)'
      date +%:z; getent hosts localhost | awk '{ print $2 }'; getent services https | awk '{ print $2 }'; getent protocols tcp | awk '{ print $2 }'
      [ -s /etc/resolv.conf ] && [ -s /etc/nsswitch.conf ] && [ -s /etc/hosts ] && [ -s /etc/os-release ] && echo files
      tput colors; TERM=vt100 tput cols; python3 -c 'import mimetypes; print(mimetypes.guess_type("a.webp")[0])'
      python3 -c 'import socket; print(socket.gethostbyname("localhost"), len(socket.gethostname()) > 0)'`);
    const offset =
      zone
        .formatToParts(new Date())
        .find(({ type }) => type === 'timeZoneName')!
        .value.slice(3) || '+00:00';
    expect(found.slice(0, 4)).toEqual(['2', '1', 'UTF-8', 'utf-8 utf-8']);
    expect(found.slice(4)).toEqual([
      ...[offset, 'localhost', '443/tcp', '6', 'files', '256', '80', 'image/webp', '127.0.0.1 True'],
    ]);
  },
  limitMs,
);

test(
  'every client of certificates is told where they are',
  async () => {
    const found = await lines(
      String.raw`
      for name in CURL_CA_BUNDLE GIT_SSL_CAINFO NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE SSL_CERT_FILE; do echo "\${!name}"; done | sort -u
      grep -c BEGIN /opt/edge/ca.pem; python3 -c 'import ssl; print(len(ssl.create_default_context().get_ca_certs()) > 100)'`.replaceAll(
        '\\$',
        '$',
      ),
    );
    expect(found[0]).toBe('/opt/edge/ca.pem');
    expect(Number(found[1])).toBeGreaterThan(100);
    expect(found[2]).toBe('True');
  },
  limitMs,
);

testWith(holderHas('ps'))(
  'ps, top, free, nproc, /proc and limits tell of the holder',
  async () => {
    const found = await lines(`
      ps -eo pid= | wc -l; ps -o comm= -p 1; ps -eo user= | sort -u; top -b -n 1 | grep -c agent; free -m | awk '/Mem/ { print ($2 > 0) }'; nproc; grep -c ^processor /proc/cpuinfo
      uptime > /dev/null && vmstat > /dev/null && echo told; ulimit -n; ulimit -u; ulimit -c; ulimit -f; cat /proc/self/oom_score_adj | awk '{ print ($1 >= 0) }'
      (ulimit -n 16; python3 -c 'import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])'); sleep 0.1 & jobs -p | wc -l; wait; nice -n 5 true && echo nice; timeout 1 sleep 5 || echo $?; pgrep -x bash | wc -l | awk '{ print ($1 > 0) }'`);
    const processes = Number(found[0]);
    expect(processes).toBeGreaterThan(2);
    expect(processes).toBeLessThan(20);
    const cores = String(navigator.hardwareConcurrency);
    expect(found.slice(1, 3)).toEqual(['edge-init', 'agent']);
    expect(Number(found[3])).toBeGreaterThan(1);
    expect(found.slice(4)).toEqual([
      ...[
        '1',
        cores,
        expect.stringMatching(/^\d+$/),
        'told',
        '4096',
        '2048',
        '0',
        'unlimited',
        '1',
        '16',
        '1',
        'nice',
        '124',
        '1',
      ],
    ]);
  },
  limitMs,
);

test(
  'what a tool cannot do says so: no root, no mounts, no tracing, no kernel log',
  async () => {
    const found = await lines(`
      refused() { local said; said=$("$@" 2>&1) && echo "did: $*" || echo "refused: $1"; }
      refused su -c true; refused mount -t tmpfs none /tmp; refused unshare -r true; refused dmesg; refused chown 1001 .; refused mknod x c 1 3; refused chroot / true; refused ls /`);
    const words = ['su', 'mount', 'unshare', 'dmesg', 'chown', 'mknod', 'chroot', 'ls'];
    expect(found).toEqual(words.map((word) => `refused: ${word}`));
  },
  limitMs,
);
