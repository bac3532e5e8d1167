/** Programs that build and install software do it in a holder: compilers, make, native git, pip, npm, node, Python. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { builtRuntime } from './harness/executable.ts';
import { holderHas, testWith } from './harness/programs.ts';
import { sameAsPlainDisk, ToolShell } from './harness/tool-shell.ts';
import { partsBelow } from './harness/tree.ts';

const limitMs = 200_000;
let shell: ToolShell;
beforeAll(async () => {
  shell = await ToolShell.start();
}, limitMs);
afterAll(async () => {
  await shell?.[Symbol.asyncDispose]();
}, limitMs);

testWith(holderHas('gcc'), holderHas('make'))(
  'gcc and make: compile, link, archive, shared library, rebuild what changed',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'gcc',
      String.raw`
      for i in 1 2 3 4 5 6; do echo "int f$i(void) { return $i; }" > f$i.c; done
      echo 'const char *name(void) { return "shared"; }' > s.c
      cat > main.c <<'END'
#include <stdio.h>
#include <string.h>
int f1(void), f2(void), f3(void), f4(void), f5(void), f6(void);
const char *name(void);
int main(void) {
  char line[64];
  FILE *file = fopen("made.txt", "w+");
  fprintf(file, "sum %d %s\n", f1() + f2() + f3() + f4() + f5() + f6(), name());
  rewind(file);
  fputs(fgets(line, sizeof line, file), stdout);
  return fclose(file);
}
END
      cat > Makefile <<'END'
O = $(patsubst %.c,%.o,$(wildcard f*.c))
app: main.o libf.a libs.so
	$(CC) -o $@ main.o -L. -lf -ls -Wl,-rpath,'$$ORIGIN'
libf.a: $(O)
	ar rcsD $@ $^
libs.so: s.c
	$(CC) -shared -fPIC -o $@ $<
%.o: %.c
	$(CC) -g -O1 -MMD -c -o $@ $<
clean:
	rm -f *.o *.d *.a *.so app
-include *.d
END
      make -s -j4 && ./app && make -q && echo up to date
      sleep 0.05; touch f3.c && make -n | grep -c f3.c && make -s && make -s clean && ls`,
    );
    expect(output).toStartWith('sum 21 shared\nup to date\n1\n');
  },
  limitMs,
);

testWith(holderHas('git'))(
  'native git: the objects, packs and histories of plain disk',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'git',
      `
      export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_TERMINAL_PROMPT=0
      export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.test GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.test
      export GIT_AUTHOR_DATE=@1000000000 GIT_COMMITTER_DATE=@1000000000
      git() { for place in /opt/edge/native-git /usr/local/bin/git /usr/bin/git; do [ -x $place ] && { $place "$@"; return; }; done; }
      git init -q -b main repo && cd repo
      mkdir -p src/deep && for i in $(seq 150); do seq $i 400 > src/deep/f$i.txt; done && ln -s deep/f1.txt src/link && chmod +x src/deep/f2.txt
      git add . && git commit -qm first && git checkout -qb side && sed -i 5d src/deep/f1.txt && git commit -qam side
      git checkout -q main && git mv src/deep/f3.txt src/moved.txt && git commit -qm moved && git merge -q --no-edit side
      git stash list && echo dirty >> src/moved.txt && git stash -q && git stash pop -q && git diff --shortstat && git checkout -q .
      git checkout -q -b third HEAD~2 && echo x > new && git add new && git commit -qm new && git rebase -q main && git cherry-pick main~1 -m 1 > /dev/null 2>&1 || git cherry-pick --abort
      git worktree add -q ../tree side && git -C ../tree status -sb && git worktree remove ../tree
      git gc -q && git repack -adq && git fsck --strict --full 2>&1 && git count-objects -v | grep -v size && git status --porcelain
      git log --format='%H %s' --graph && git ls-files -s | cksum
      git clone -q . ../clone && git -C ../clone log -1 --format=%H && git bundle create -q ../b main && git clone -q -b main ../b ../bundled && git -C ../bundled rev-parse HEAD
      cd ../clone && echo pushed > p && git add p && git commit -qm pushed && git push -q origin HEAD:refs/heads/pushed && git -C ../repo show pushed:p
      git archive HEAD | tar tf - | wc -l && git grep -c '^399$' | wc -l && git bisect start HEAD HEAD~2 > /dev/null && git bisect reset > /dev/null 2>&1 && git clean -nfdx`,
    );
    expect(output).toContain('pushed\n');
  },
  limitMs,
);

const hasEnsurepip =
  Bun.spawnSync([join(builtRuntime(), 'bin/python'), '-c', 'import ensurepip, venv'], { stderr: 'ignore' }).exitCode ===
  0;

testWith(hasEnsurepip)(
  'python -m venv, and pip install of a wheel into it',
  async () => {
    const made = await shell.run(
      'pip',
      String.raw`
      python3 - <<'END'
import zipfile
name = 'hello_pkg-1.0'
files = {
    'hello_pkg/__init__.py': 'import importlib.resources as r\ndef main(): print("hello from", (r.files("hello_pkg") / "data.txt").read_text())\n',
    'hello_pkg/data.txt': 'a wheel',
    name + '.dist-info/METADATA': 'Metadata-Version: 2.1\nName: hello-pkg\nVersion: 1.0\n',
    name + '.dist-info/WHEEL': 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n',
    name + '.dist-info/entry_points.txt': '[console_scripts]\nhello-pkg = hello_pkg:main\n',
}
record = name + '.dist-info/RECORD'
with zipfile.ZipFile(name + '-py3-none-any.whl', 'w') as wheel:
    for path, text in files.items(): wheel.writestr(path, text)
    wheel.writestr(record, ''.join(path + ',,\n' for path in [*files, record]))
END
      python3 -m venv v`,
    );
    expect(made).toEqual({ output: '\n', exitCode: 0 });
    const { output, exitCode } = await shell.run(
      'pip',
      `
      v/bin/pip install -q --disable-pip-version-check --no-index --find-links . hello-pkg
      v/bin/hello-pkg; v/bin/python -c 'import sys; print(sys.prefix)'
      . v/bin/activate; pip list --disable-pip-version-check --format=freeze | grep hello; command -v hello-pkg
      pip uninstall -qy hello-pkg; pip check; command -v hello-pkg || echo gone
      deactivate; rm -r v; ls`,
    );
    const lines = ['hello from a wheel', '/workspace/pip/v', 'hello-pkg==1.0', '/workspace/pip/v/bin/hello-pkg'];
    const end = ['No broken requirements found.', 'gone', 'hello_pkg-1.0-py3-none-any.whl'];
    expect({ output, exitCode }).toEqual({ output: [...lines, ...end, ''].join('\n'), exitCode: 0 });
  },
  limitMs,
);

/** The most memory that a process has had at once since the last call, in MiB. Needs root. */
function peakMebibytes(pid: number): number {
  const kilobytes = Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]);
  writeFileSync(`/proc/${pid}/clear_refs`, '5');
  return kilobytes / 1024;
}

testWith(holderHas('node'), holderHas('npm'))(
  'npm install of 300 packages and rm -rf of them, in bounded memory',
  async () => {
    const machine = partsBelow(shell.gateway.pid).get('machine')![0]!;
    peakMebibytes(machine.pid);
    const made = await shell.run(
      'npm',
      String.raw`
      cat > make.js <<'END'
const { writeFileSync, mkdirSync } = require('fs');
const { gzipSync } = require('zlib');
// A tar archive: the header's checksum counts its own field as spaces.
const entry = (name, text) => {
  const body = Buffer.from(text), head = Buffer.alloc(512);
  const field = (value, at) => head.write(value, at);
  field(name, 0); field('0000755\0', 100); field('0000000\0', 108); field('0000000\0', 116);
  field(body.length.toString(8).padStart(11, '0') + '\0', 124); field('00000000000\0', 136); field('        ', 148);
  field('0', 156); field('ustar\x0000', 257);
  field(head.reduce((sum, byte) => sum + byte, 0).toString(8).padStart(6, '0') + '\0 ', 148);
  return Buffer.concat([head, body, Buffer.alloc((512 - body.length % 512) % 512)]);
};
mkdirSync('packages');
const dependencies = {};
for (let number = 0; number < 300; number++) {
  const name = 'pkg-' + number;
  const about = { name, version: '1.0.0', main: 'index.js' };
  if (number % 10 === 0) about.bin = { [name]: 'index.js' };
  const entries = [entry('package/package.json', JSON.stringify(about))];
  entries.push(entry('package/index.js', '#!/usr/bin/env node\nmodule.exports = ' + number + ' + require("./lib/f0.js").zero;\n'));
  for (let file = 0; file < 5; file++) entries.push(entry('package/lib/f' + file + '.js', 'exports.zero = 0;' + '/'.repeat(1500)));
  writeFileSync('packages/' + name + '.tgz', gzipSync(Buffer.concat([...entries, Buffer.alloc(1024)])));
  dependencies[name] = 'file:packages/' + name + '.tgz';
}
writeFileSync('package.json', JSON.stringify({ name: 'app', version: '1.0.0', dependencies }));
END
      export NPM_CONFIG_UPDATE_NOTIFIER=false
      node make.js
      ls packages | wc -l`,
    );
    expect(made).toEqual({ output: '300\n', exitCode: 0 });
    const installed = await shell.run(
      'npm',
      `export NPM_CONFIG_UPDATE_NOTIFIER=false
      npm install --offline --no-audit --no-fund --loglevel=error | grep -o 'added 300 packages'
      ls node_modules | wc -l; ls node_modules/.bin | wc -l; find node_modules -type f ! -name .package-lock.json | wc -l`,
    );
    expect(installed).toEqual({ output: 'added 300 packages\n300\n30\n2100\n', exitCode: 0 });
    const { output, exitCode } = await shell.run(
      'npm',
      `export NPM_CONFIG_UPDATE_NOTIFIER=false
      node -e 'let sum = 0; for (let i = 0; i < 300; i++) sum += require("pkg-" + i); console.log(sum)'
      npm ls --offline --parseable | wc -l; npm exec --offline pkg-10 && npm pkg set scripts.say='echo said' && npm run -s say
      rm -rf node_modules; ls`,
    );
    const lines = ['44850', '301', 'said', 'make.js', 'package-lock.json'];
    expect({ output, exitCode }).toEqual({
      output: [...lines, 'package.json', 'packages', ''].join('\n'),
      exitCode: 0,
    });
    expect(peakMebibytes(machine.pid)).toBeLessThan(640);
  },
  limitMs,
);

testWith(holderHas('node'))(
  "node's file functions",
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'node',
      String.raw`
      cat > suite.mjs <<'END'
import * as fs from 'node:fs';
import * as p from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
const show = (...words) => console.log(...words);
const codeOf = async (work) => { try { await work(); return 'none'; } catch (error) { return error.code; } };
await p.mkdir('a/b/c', { recursive: true }); await p.writeFile('a/b/c/f', 'text'); await p.appendFile('a/b/c/f', ' more');
show(await p.readFile('a/b/c/f', 'utf8'), (await p.stat('a/b/c/f')).size, (await p.readdir('a', { recursive: true })).sort());
await p.symlink('b/c', 'a/link'); show(await p.readlink('a/link'), (await p.realpath('a/link/f')).split('/').slice(-3), (await p.lstat('a/link')).isSymbolicLink());
await p.link('a/b/c/f', 'hard'); show((await p.stat('hard', { bigint: true })).nlink, (await p.stat('hard')).ino === (await p.stat('a/link/f')).ino);
await p.cp('a', 'copy', { recursive: true, preserveTimestamps: true, verbatimSymlinks: true }); show((await p.readdir('copy', { recursive: true })).sort());
await p.copyFile('hard', 'over', fs.constants.COPYFILE_EXCL); show(await codeOf(() => p.copyFile('hard', 'over', fs.constants.COPYFILE_EXCL)));
await p.copyFile('hard', 'cloned', fs.constants.COPYFILE_FICLONE); show(fs.readFileSync('cloned', 'utf8'));
const file = await p.open('random', 'w+');
await file.writev([Buffer.from('one'), Buffer.from('two')]); await file.write('X', 70000); await file.truncate(70010); await file.sync(); await file.datasync();
const { bytesRead, buffers } = await file.readv([Buffer.alloc(4), Buffer.alloc(4)], 0); show(bytesRead, buffers.map(String), (await file.stat()).size);
await file.utimes(1, 2.5); show((await file.stat()).mtimeMs); await file.chmod(0o600); show(((await file.stat()).mode & 0o777).toString(8)); await file.close();
await p.utimes('over', new Date(1e12), new Date(1e12 + 1)); await p.lutimes('a/link', 5, 6); show((await p.stat('over')).mtimeMs, (await p.lstat('a/link')).mtimeMs);
await p.access('over', fs.constants.R_OK | fs.constants.W_OK); show(await codeOf(() => p.access('over', fs.constants.X_OK)));
await p.rename('over', 'renamed'); show(fs.existsSync('over'), await codeOf(() => p.rename('a', 'renamed')), await codeOf(() => p.rmdir('a')), await codeOf(() => p.unlink('none')), await codeOf(() => p.mkdir('a')));
await pipeline(async function* () { for (let i = 0; i < 300; i++) yield Buffer.alloc(10000, i); }, fs.createWriteStream('stream'));
let bytes = 0; let sum = 0; for await (const part of fs.createReadStream('stream', { highWaterMark: 4096, start: 5, end: 2999998 })) { bytes += part.length; for (const byte of part) sum += byte; } show(bytes, sum);
const temporary = await p.mkdtemp('t-'); show(temporary.length); const names = []; for await (const entry of await p.opendir('a')) names.push(entry.name + entry.isDirectory()); show(names.sort());
await Promise.all(Array.from({ length: 200 }, (_, index) => p.writeFile(temporary + '/' + index, String(index)))); show((await Promise.all((await p.readdir(temporary)).map((name) => p.readFile(temporary + '/' + name, 'utf8')))).reduce((all, one) => all + Number(one), 0));
const log = fs.openSync('log', 'a+'); for (let i = 0; i < 50; i++) fs.appendFileSync(log, i + '\n'); fs.closeSync(log); show(fs.readFileSync('log', 'utf8').length);
const seen = new Promise((resolve) => { const watcher = fs.watch('a', (kind, name) => { if (name === 'watched') { watcher.close(); resolve(name); } }); }); fs.writeFileSync('a/watched', 'x'); show('watched', await seen);
await p.rm(temporary, { recursive: true }); await p.rm('copy', { recursive: true, force: true, maxRetries: 2 }); show((await p.readdir('.')).filter((name) => name !== 'suite.mjs').sort(), await codeOf(() => p.rm('copy')));
END
      node suite.mjs`,
    );
    expect(output).toContain('watched watched\n');
  },
  limitMs,
);

test(
  "Python's shutil, tempfile, zipfile, pathlib, mailbox, shelve and processes",
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'python',
      String.raw`
      cat > suite.py <<'END'
import array, concurrent.futures, contextlib, dbm.dumb, filecmp, fcntl, glob, io, json, lzma, mailbox, mmap, multiprocessing, os, pathlib, pickle, shelve, shutil, stat, subprocess, sys, tempfile, zipfile
from multiprocessing import shared_memory
P = pathlib.Path
def work(number): return number * number
def count(lock, semaphore, queue, path):
    for _ in range(20):
        with semaphore, lock: P(path).write_text(str(int(P(path).read_text()) + 1))
    queue.put(1)
def text(error):
    try: error()
    except OSError as found: return type(found).__name__
    return 'none'
if __name__ == '__main__':
    P('t/x/y').mkdir(parents=True); P('t/f').write_text('f'); P('t/x/g').write_bytes(bytes(range(256)) * 999); os.symlink('../f', 't/x/link'); os.chmod('t/f', 0o640); os.utime('t/x/g', ns=(1, 10**18 + 1))
    shutil.copytree('t', 'u', symlinks=True); print(sorted(map(str, P('u').rglob('*'))), os.stat('u/x/g').st_mtime_ns, oct(os.stat('u/f').st_mode), filecmp.dircmp('t', 'u').diff_files)
    for kind in ('tar', 'gztar', 'xztar', 'zip'): print(kind, os.path.basename(shutil.make_archive('made', kind, 't'))); 
    shutil.unpack_archive('made.tar.gz', 'v'); shutil.move('v', 'w'); shutil.rmtree('u'); print(sorted(os.listdir('w')), shutil.disk_usage('.').free > 0)
    with tempfile.TemporaryDirectory(dir='.') as d, tempfile.NamedTemporaryFile('w+', dir=d) as n, tempfile.TemporaryFile(dir=d) as a, tempfile.SpooledTemporaryFile(10, dir=d) as s:
        n.write('named'); n.flush(); a.write(b'no name' * 9999); s.write(b'spooled over'); a.seek(0); s.seek(0); print(P(n.name).read_text(), len(a.read()), s.read(), os.fstat(a.fileno()).st_nlink, len(os.listdir(d)))
    with zipfile.ZipFile('z.zip', 'w', zipfile.ZIP_DEFLATED) as z: z.write('t/x/g'); z.writestr('s', 'text')
    with zipfile.ZipFile('z.zip') as z: print(z.testzip(), z.namelist())
    with shelve.open('shelf') as s: s['k'] = [1, 2]
    with shelve.open('shelf') as s: print(s['k'])
    box = mailbox.Maildir('mail'); box.lock(); key = box.add('From: a\n\nbody'); box.unlock(); print(box[key].get_payload()); m = mailbox.mbox('mbox'); m.lock(); m.add('From: b\n\nbody'); m.flush(); m.unlock(); print(len(m))
    with open('m', 'w+b') as f:
        f.truncate(3_000_000); a = mmap.mmap(f.fileno(), 0); b = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
        a[2_000_000:2_000_005] = b'hello'; print(bytes(b[1_999_999:2_000_006])); a.flush(); f.seek(2_000_000); print(f.read(5));
        if os.fork() == 0: a[0:5] = b'child'; os._exit(0)
        os.wait(); print(bytes(a[0:5])); b.close(); a.close()
    print(P('m').read_bytes()[:5], P('m').stat().st_size)
    with open('m', 'r+b') as f: f.write(b'direct'); f.flush(); c = mmap.mmap(f.fileno(), 0, mmap.MAP_PRIVATE); c[0:3] = b'own'; print(bytes(c[0:6]), P('m').read_bytes()[:6]); c.close()
    with open('m', 'rb') as src, open('sent', 'wb') as dst: print(os.sendfile(dst.fileno(), src.fileno(), 0, 100_000), os.copy_file_range(src.fileno(), dst.fileno(), 50_000, 10))
    r, w = os.pipe(); os.write(w, b'spliced'); fd = os.open('sp', os.O_WRONLY | os.O_CREAT); os.splice(r, fd, 7); print(P('sp').read_text(), os.pread(os.open('sp', os.O_RDONLY), 3, 2))
    fd = os.open('.', os.O_RDONLY); os.mkdir('at', dir_fd=fd); h = os.open('at/f', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=fd); os.posix_fallocate(h, 0, 5000); print(os.fstat(h).st_size, os.listdir(fd) == os.listdir('.')); os.fsync(fd); os.rename('at', 'at2', src_dir_fd=fd, dst_dir_fd=fd)
    print(text(lambda: os.open('sp', os.O_CREAT | os.O_EXCL)), text(lambda: os.open('sp/x', os.O_RDONLY)), text(lambda: os.rmdir('t')), text(lambda: open('t')), text(lambda: os.open('t/x/link', os.O_NOFOLLOW)), text(lambda: os.mknod('dev', stat.S_IFCHR | 0o600, os.makedev(1, 3))))
    os.chmod('sp', 0o400); print(text(lambda: open('sp', 'w'))); os.umask(0o027); P('masked').touch(); os.mkdir('dmasked', 0o777); print(oct(P('masked').stat().st_mode), oct(P('dmasked').stat().st_mode))
    P('count').write_text('0')
    context = multiprocessing.get_context('fork'); lock, semaphore, queue = context.Lock(), context.Semaphore(2), context.Queue()
    ps = [context.Process(target=count, args=(lock, semaphore, queue, 'count')) for _ in range(4)]; [p.start() for p in ps]; print(sum(queue.get() for p in ps)); [p.join() for p in ps]; print(P('count').read_text())
    with multiprocessing.get_context('spawn').Pool(2) as pool: print(pool.map(work, range(5)))
    with concurrent.futures.ThreadPoolExecutor(8) as pool: print(sum(pool.map(lambda i: P('th%d' % i).write_text('x' * i), range(50))))
    memory = shared_memory.SharedMemory(create=True, size=100_000); memory.buf[:4] = b'mem!'; other = shared_memory.SharedMemory(memory.name); print(bytes(other.buf[:4])); other.close(); memory.close(); memory.unlink()
    print(subprocess.run(['sh', '-c', 'echo out; echo err >&2; exit 3'], capture_output=True), subprocess.run('cat', input=b'in' * 50000, capture_output=True).stdout == b'in' * 50000)
    print(sorted(glob.glob('[!st]*')))
END
      python3 suite.py`,
    );
    expect(output).toContain('[0, 1, 4, 9, 16]\n1225\n');
  },
  limitMs,
);

testWith(holderHas('javac'))(
  'javac and java',
  async () => {
    const output = await sameAsPlainDisk(
      shell,
      'java',
      `cat > A.java <<'END'
import java.nio.file.*;
public class A {
  public static void main(String[] words) throws Exception {
    Files.writeString(Path.of("made"), "made by java");
    System.out.println(Files.readString(Path.of("made")) + " " + java.net.InetAddress.getLoopbackAddress());
    javax.net.ssl.SSLContext.getDefault();
  }
}
END
      javac A.java && java A && jar cf a.jar A.class && java -cp a.jar A && ls`,
    );
    expect(output).toStartWith('made by java localhost/127.0.0.1\n');
  },
  limitMs,
);
