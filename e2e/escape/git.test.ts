/**
 * The git of a holder runs in the machine, where all conversations' files are: what a tool may have it read, write and connect
 * to is the tool's own and nothing else. Some of these the machine leaves to a native git in the holder; the walls are the same.
 */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { Cell, limitMs } from './cell.fixture.ts';

let cell: Cell;

beforeAll(async () => {
  cell = await Cell.start();
  // Control: git works, links included.
  const { output } =
    await cell.shell(`cd /workspace && git init -q repo && cd repo && git config user.name a && git config user.email a@example.test
echo one > file; ln -s /hermes/.env link; ln -s /hermes home; mkdir dir; echo two > dir/.env; git add -A 2>&1 && git commit -qm first && git log --oneline | wc -l; git show HEAD:file; git cat-file -p HEAD:link`);
  expect(output).toBe('1\none\n/hermes/.env');
}, limitMs);
afterAll(async () => {
  await cell?.stop();
}, limitMs);

const nothing = (said: string) => {
  for (const marker of Object.values(cell.markers)) expect(said).not.toContain(marker);
};

describe('reading what is not its own', () => {
  const target = () => `/conversations/${cell.neighbour}/work/private.txt`;
  test.each([
    ['a repository in the private home', 'git -C /hermes status; git --git-dir=/hermes log; GIT_DIR=/hermes git log'],
    [
      'a work tree in the private home',
      'git --work-tree=/hermes add -A; git --work-tree=/hermes status; GIT_WORK_TREE=/hermes git add .env && git show :.env',
    ],
    [
      'a .git file that leads there',
      'mkdir -p away && echo "gitdir: /hermes" > away/.git && git -C away log; git -C away config -l',
    ],
    ['alternate objects', 'echo /hermes > .git/objects/info/alternates; git fsck; rm .git/objects/info/alternates'],
    [
      'a configuration file',
      'git config -f /hermes/.env -l; git config --file link -l; GIT_CONFIG_GLOBAL=/hermes/.env git config -l; GIT_CONFIG_SYSTEM=/hermes/config.yaml git config -l',
    ],
    [
      'an included configuration',
      'git -c include.path=/hermes/.env config -l; git config include.path /hermes/.env; git config -l; git config --unset include.path',
    ],
    [
      'a message',
      'git commit --allow-empty -F /hermes/.env; git commit --allow-empty -F link; git log -1 --format=%B; git tag -F /hermes/.env t; git notes add -F /hermes/.env',
    ],
    [
      'an object',
      'git hash-object -w /hermes/.env; git hash-object -w link; git hash-object -w home/.env; git cat-file -p $(git hash-object -w home/.env)',
    ],
    [
      'the index',
      'git add home/.env; git add /hermes/.env; git update-index --add home/.env; git diff --cached; git show :home/.env',
    ],
    [
      'a comparison',
      'git diff --no-index /dev/null /hermes/.env; git diff --no-index file link; git diff --no-index dir home',
    ],
    ['a patch', 'git apply /hermes/.env; git apply --stat home/.env; git am /hermes/.env'],
    ['a search', 'git grep --no-index PLANTED /hermes; git grep PLANTED -- home; git grep -f /hermes/.env x'],
    [
      'ignored and attributed files',
      'git -c core.excludesFile=/hermes/.env status; git -c core.attributesFile=/hermes/.env check-attr -a file; git check-ignore -v --no-index -n PLANTED_API_KEY',
    ],
    ['blame', 'git blame --contents /hermes/.env file; git blame --ignore-revs-file /hermes/.env file'],
    [
      'a clone',
      'git clone /hermes c1; git clone file:///hermes c2; git clone --reference /hermes . c3; git ls-remote /hermes; git fetch /hermes',
    ],
    [
      'pathspecs',
      'git add --pathspec-from-file=/hermes/.env; git status -- ../../hermes; git add ../../hermes/.env; git log -- /hermes/.env',
    ],
    ['an archive', 'git archive --add-file=/hermes/.env HEAD | tar xO; git archive --remote=/hermes HEAD'],
    ['a bundle', 'git bundle verify /hermes/.env; git bundle unbundle /hermes/.env; git unpack-objects < link'],
  ])('%s', async (_what, commands) => {
    const { output } = await cell.shell(
      `cd /workspace/repo\n${commands
        .split('; ')
        .map((one) => `(${one}) 2>&1`)
        .join('\n')}\ntrue`,
    );
    nothing(output);
    expect(output).not.toContain('PLANTED_API_KEY=');
    expect(output).not.toContain('base_url:');
  });

  test('the neighbour', async () => {
    const { output } = await cell.shell(`cd /workspace/repo
git -C /conversations/${cell.neighbour}/work status 2>&1; git hash-object -w ${target()} 2>&1; git clone /conversations/${cell.neighbour}/work n 2>&1
git --work-tree=/workspace/../../${cell.neighbour}/work add -A 2>&1; git diff --no-index /dev/null ${target()} 2>&1; ln -sfn ../../${cell.neighbour}/work up; git add up/private.txt 2>&1; git show :up/private.txt 2>&1; true`);
    nothing(output);
  });
});

describe('writing what is not its own', () => {
  test.each([
    [
      'a checkout through a link',
      'rm -rf dir; ln -s /hermes dir; git checkout -- dir/.env; git checkout -f HEAD -- .; git reset --hard; git restore dir/.env',
    ],
    [
      'a patch through a link',
      "printf 'diff --git a/home/.env b/home/.env\\n--- a/home/.env\\n+++ b/home/.env\\n@@ -1 +1 @@\\n-PLANTED\\n+CHANGED\\n' | git apply --unsafe-paths",
    ],
    [
      'an output file',
      'git format-patch -1 -o /hermes; git archive -o /hermes/.env HEAD; git log --output=/hermes/config.yaml; git bundle create /hermes/SOUL.md HEAD; git diff --output=link HEAD~',
    ],
    [
      'a repository there',
      'git init /hermes/r; git init /hermes; git clone . /hermes/c; git worktree add /hermes/w; git init --separate-git-dir=/hermes/g s',
    ],
    [
      'a configuration there',
      'git config -f /hermes/.env a.b c; git config -f link a.b c; git config -f home/config.yaml a.b c',
    ],
    ['the inbound files', 'git init /artifacts/inbound; git --work-tree=/artifacts/inbound checkout -f HEAD'],
    ['its own removal', 'git clean -ffdx /hermes; git rm -rf --cached /hermes; git -C / clean -ffdx'],
    [
      'a path that names another place',
      'git update-index --add --cacheinfo 100644,$(git hash-object -w file),../../hermes/.env; git update-index --add --cacheinfo 100644,$(git hash-object -w file),.git/hooks/post-checkout; git checkout-index -af',
    ],
  ])('%s', async (_what, commands) => {
    const { output } = await cell.shell(
      `cd /workspace/repo\n${commands
        .split('; ')
        .map((one) => `(${one}) 2>&1`)
        .join('\n')}\ntrue`,
    );
    nothing(output);
  });
});

describe('connecting where the holder may not', () => {
  test.skipIf(process.getuid?.() !== 0).each([
    ["the gateway's own port", () => `http://127.0.0.1:${new URL(cell.gateway.url).port}/r`],
    ['the gateway by another name', () => `http://localhost:${new URL(cell.gateway.url).port}/r`],
    ['cloud metadata', () => 'http://169.254.169.254/latest'],
  ])('%s', async (_what, url) => {
    const { output, code } = await cell.shell(`cd /workspace/repo; timeout 20 git ls-remote ${url()} 2>&1`);
    expect(code).not.toBe(0);
    // What the gateway would have answered.
    expect(output).not.toMatch(/\b(401|404|403)\b|not found/);
  });

  test('commands that a configuration names run in the holder, behind its walls', async () => {
    const { output } = await cell.shell(`cd /workspace/repo
for c in core.pager core.editor core.sshCommand core.fsmonitor diff.external credential.helper core.hooksPath; do
  git -c $c='cat /hermes/.env; true' -c core.pager=cat log -1 --ext-diff 2>&1
done
git -c protocol.ext.allow=always ls-remote 'ext::cat /hermes/.env' 2>&1
git -c alias.x='!cat /hermes/.env; cat /proc/2/environ' x 2>&1
GIT_SSH_COMMAND='cat /hermes/.env' git ls-remote ssh://x/y 2>&1; true`);
    nothing(output);
    expect(output).toContain('Permission denied');
  });
});

test('what no client says is refused, and the next call works', async () => {
  const said = await cell.python(`
import random
random.seed(4)
for n in range(60):
    s = socket.socket(socket.AF_UNIX); s.settimeout(0.3)
    if tried(lambda: s.connect('/opt/edge/git.sock')) != 'done': print('none'); break
    tried(lambda: s.sendall(random.choice([b'c', b'i', b'\\xff', b'']) + struct.pack('<I', random.choice([0, 1, 24, 65536, 2**31, 2**32 - 1])) + bytes(random.randrange(256) for _ in range(200))))
    s.close()
os.chdir('/workspace/repo'); print(os.popen('git rev-parse --abbrev-ref HEAD').read().strip() != '')`);
  expect(said).toMatch(/True$/);
});

test('after all that no secret is anywhere, and the private files are as they were written', async () => {
  expect(await cell.leaks()).toEqual([]);
  const [dotenv] = await cell.stored('.env');
  expect(dotenv).toBe(`PLANTED_API_KEY=${cell.markers.dotenv}\n`);
});
