/**
 * Two who change the same files without having seen each other's changes: two machines, or a machine and the API. What was
 * not pushed is replayed over what a pull brings, the last push wins, and no file is lost that nobody deleted.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { startAuthority, type TestAuthority } from './agentfs/authority.fixture.ts';
import {
  type Actor,
  ApiActor,
  flawsOf,
  MachineActor,
  print,
  sqlOf,
  sqlOfCloud,
  type Tree,
  treeOf,
} from './conflicts.fixture.ts';

setDefaultTimeout(60_000);
let authority: TestAuthority;
let first: MachineActor;
let second: MachineActor;
let api: ApiActor;
let count = 0;
const home = () => `/conversations/conv/work/t${count}`;

beforeAll(async () => {
  authority = await startAuthority();
  await authority.cloud.ensureDirectory('/conversations/conv/work');
  first = await MachineActor.open(authority, 'first', home);
  second = await MachineActor.open(authority, 'second', home);
  api = new ApiActor(authority, home);
});
afterAll(async () => {
  await first.opened.boundary.close();
  await second.opened.boundary.close();
  await authority.stop();
});

type Contents = Readonly<Record<'base' | 'one' | 'two', Uint8Array>>;

interface Conflict {
  readonly what: string;
  readonly setUp?: (actor: Actor, contents: Contents) => Promise<void>;
  readonly one: (actor: Actor, contents: Contents) => Promise<void>;
  readonly two: (actor: Actor, contents: Contents) => Promise<void>;
  /** What is there in the end; `last` pushed last. */
  readonly expected: (contents: Contents, last: 'one' | 'two') => Tree;
}

const conflicts: readonly Conflict[] = [
  {
    what: 'two files',
    one: (actor, { one }) => actor.write('a', one),
    two: (actor, { two }) => actor.write('b', two),
    expected: ({ one, two }) => ({ a: print(one), b: print(two) }),
  },
  {
    what: 'two files that were there',
    setUp: async (actor, { base }) => {
      await actor.write('a', base);
      await actor.write('b', base);
    },
    one: (actor, { one }) => actor.write('a', one),
    two: (actor, { two }) => actor.write('b', two),
    expected: ({ one, two }) => ({ a: print(one), b: print(two) }),
  },
  {
    what: 'the same new file',
    one: (actor, { one }) => actor.write('same', one),
    two: (actor, { two }) => actor.write('same', two),
    expected: (contents, last) => ({ same: print(contents[last]) }),
  },
  {
    what: 'the same file that was there',
    setUp: (actor, { base }) => actor.write('same', base),
    one: (actor, { one }) => actor.write('same', one),
    two: (actor, { two }) => actor.write('same', two),
    expected: (contents, last) => ({ same: print(contents[last]) }),
  },
  {
    what: 'contents and permissions of one file',
    setUp: (actor, { base }) => actor.write('same', base),
    one: (actor, { one }) => actor.write('same', one),
    two: (actor) => actor.setMode('same', 0o600),
    expected: ({ one }) => ({ same: print(one) }),
  },
  {
    what: 'removed, and its permissions changed',
    setUp: (actor, { base }) => actor.write('gone', base),
    one: (actor) => actor.remove('gone'),
    two: (actor) => actor.setMode('gone', 0o600),
    expected: () => ({}),
  },
  {
    what: 'removed, and written anew',
    setUp: (actor, { base }) => actor.write('gone', base),
    one: (actor) => actor.remove('gone'),
    two: (actor, { two }) => actor.write('gone', two),
    expected: () => ({}),
  },
  {
    what: 'removed, and made longer',
    setUp: (actor, { base }) => actor.write('gone', base),
    one: (actor) => actor.remove('gone'),
    two: (actor, { one, two }) => actor.write('gone', Buffer.concat([one, two])),
    expected: () => ({}),
  },
  {
    what: 'the same new directory, with a file each',
    one: async (actor, { one }) => {
      await actor.makeDirectory('d');
      await actor.write('d/a', one);
    },
    two: async (actor, { two }) => {
      await actor.makeDirectory('d');
      await actor.write('d/b', two);
    },
    expected: ({ one, two }) => ({ 'd/': '', 'd/a': print(one), 'd/b': print(two) }),
  },
  {
    what: 'a directory removed, and a file made in it',
    setUp: (actor) => actor.makeDirectory('d'),
    one: (actor) => actor.removeDirectory('d'),
    two: (actor, { two }) => actor.write('d/new', two),
    expected: ({ two }) => ({ 'd/': '', 'd/new': print(two) }),
  },
  {
    what: 'a directory removed with its file, and another made in it',
    setUp: async (actor, { base }) => {
      await actor.makeDirectory('d');
      await actor.write('d/old', base);
    },
    one: async (actor) => {
      await actor.remove('d/old');
      await actor.removeDirectory('d');
    },
    two: (actor, { two }) => actor.write('d/new', two),
    expected: ({ two }) => ({ 'd/': '', 'd/new': print(two) }),
  },
  {
    what: 'one file renamed twice',
    setUp: (actor, { base }) => actor.write('from', base),
    one: (actor) => actor.rename('from', 'to one'),
    two: (actor) => actor.rename('from', 'to two'),
    expected: ({ base }) => ({ 'to one': print(base), 'to two': print(base) }),
  },
  {
    what: 'one directory moved into another, and that into it',
    setUp: async (actor, { base }) => {
      await actor.makeDirectory('d');
      await actor.makeDirectory('e');
      await actor.write('d/a', base);
    },
    one: (actor) => actor.rename('d', 'e/d'),
    two: (actor) => actor.rename('e', 'd/e'),
    expected: ({ base }, last) =>
      last === 'two' ? { 'd/': '', 'd/a': print(base), 'd/e/': '' } : { 'e/': '', 'e/d/': '', 'e/d/a': print(base) },
  },
  {
    what: 'a file renamed, and changed',
    setUp: (actor, { base }) => actor.write('from', base),
    one: (actor) => actor.rename('from', 'to'),
    two: (actor, { two }) => actor.write('from', two),
    expected: ({ two }) => ({ to: print(two) }),
  },
  {
    what: 'a second name given, and the first taken away',
    setUp: (actor, { base }) => actor.write('first', base),
    one: (actor) => actor.link('first', 'second'),
    two: (actor) => actor.rename('first', 'third'),
    expected: ({ base }) => ({ second: print(base), third: print(base) }),
  },
];

const random = (bytes: number) => crypto.getRandomValues(new Uint8Array(bytes));
const sizes: readonly (readonly [string, number])[] = [
  ['small', 1_000],
  ['in the spool', 600_000],
];

async function settled(): Promise<void> {
  for (const machine of [first, second, first, second]) {
    await machine.begin();
    expect(await machine.end()).toEqual({ state: 'clean' });
  }
}

/** Both replicas and the cloud have the same, and nothing is wrong in any of them. */
async function same(): Promise<Tree> {
  const [one, two, cloud] = await Promise.all([
    treeOf(sqlOf(first), home()),
    treeOf(sqlOf(second), home()),
    treeOf(sqlOfCloud(authority), home()),
  ]);
  expect(one).toEqual(cloud);
  expect(two).toEqual(cloud);
  for (const all of [sqlOf(first), sqlOf(second), sqlOfCloud(authority)]) expect(await flawsOf(all)).toEqual([]);
  return cloud;
}

/** Each has seen what was set up, and nothing since. */
async function prepare(conflict: Conflict, contents: Contents): Promise<void> {
  count += 1;
  await authority.cloud.ensureDirectory(home());
  await first.begin();
  await conflict.setUp?.(first, contents);
  expect(await first.end()).toEqual({ state: 'clean' });
  await second.begin();
  await first.begin();
}

describe.each(sizes)('%s', (_, bytes) => {
  const contents = { base: random(bytes), one: random(bytes), two: random(bytes - 300) };

  describe.each(conflicts)('$what', (conflict) => {
    test.each(['one', 'two'] as const)('two machines, %s pushes last', async (last) => {
      await prepare(conflict, contents);
      await conflict.one(first, contents);
      await conflict.two(second, contents);
      const order = last === 'two' ? [first, second] : [second, first];
      for (const machine of order) expect(await machine.end()).toEqual({ state: 'clean' });
      await settled();
      expect(await same()).toEqual(conflict.expected(contents, last));
    });

    test('two machines at once', async () => {
      await prepare(conflict, contents);
      await conflict.one(first, contents);
      await conflict.two(second, contents);
      await Promise.all([first.end(), second.end()]);
      await settled();
      expect([conflict.expected(contents, 'one'), conflict.expected(contents, 'two')]).toContainEqual(await same());
    });

    test.each(['one', 'two'] as const)('the API does %s while the machine has not pushed', async (side) => {
      await prepare(conflict, contents);
      const [byApi, byMachine] = side === 'one' ? [conflict.one, conflict.two] : [conflict.two, conflict.one];
      await byMachine(first, contents);
      await byApi(api, contents);
      expect(await first.end()).toEqual({ state: 'clean' });
      await settled();
      expect(await same()).toEqual(conflict.expected(contents, side === 'one' ? 'two' : 'one'));
    });
  });
});

/** Contents of everything that has a name, wherever it is. */
async function everywhere(): Promise<string[]> {
  return Object.values(await treeOf(sqlOfCloud(authority), '/'));
}

let sdkId = 1_000;

/** The first machine ends its boundary; where only another process can, that one does. */
async function endOrStartAnew(ending = first.end()): Promise<void> {
  const { state } = await ending;
  if (first.isUnusable) {
    expect(state).toBe('failing');
    await first.openAnew();
    await first.begin();
    expect(await first.end()).toEqual({ state: 'clean' });
  } else expect(state).toBe('clean');
}

describe.each(sizes)('names that another program gave under other row ids: %s', (_, bytes) => {
  test.each([
    ['one', ['clash']],
    ['several', ['clash1', 'other', 'clash2', 'clash3']],
  ])('%s', async (_what, names) => {
    count += 1;
    await authority.cloud.ensureDirectory(home());
    await second.begin();
    await first.begin();
    const mine = new Map(names.map((name) => [name, random(bytes)]));
    for (const [name, contents] of mine) await first.write(name, contents);
    for (const name of names) if (name.startsWith('clash')) await api.writeAsSdk(name, `sdk ${name}`, ++sdkId);
    await endOrStartAnew();
    await first.begin();
    await first.write('later', random(bytes));
    expect(await first.end()).toEqual({ state: 'clean' });
    await settled();
    const tree = await same();
    expect(Object.keys(tree).sort()).toEqual([...names, 'later'].sort());
    const all = await everywhere();
    for (const [name, contents] of mine) {
      expect(all, name).toContain(print(contents));
      if (name.startsWith('clash')) expect(all, name).toContain(print(Buffer.from(`sdk ${name}`)));
    }
  });

  test('while what is pushed is under way', async () => {
    count += 1;
    await authority.cloud.ensureDirectory(home());
    await second.begin();
    await first.begin();
    const [mine, other] = [random(bytes), random(bytes)];
    await first.write('clash', mine);
    await first.write('other', other);
    const before = authority.requests();
    const letGo = authority.hold();
    const end = first.end();
    while (authority.requests() === before) await Bun.sleep(1);
    letGo();
    const again = authority.hold();
    while (authority.requests() === before + 1) await Bun.sleep(1);
    await api.writeAsSdk('clash', 'sdk', ++sdkId);
    again();
    await endOrStartAnew(end);
    await first.begin();
    await first.write('later', mine);
    expect(await first.end()).toEqual({ state: 'clean' });
    await settled();
    expect(Object.keys(await same()).sort()).toEqual(['clash', 'later', 'other']);
    const all = await everywhere();
    for (const contents of [mine, other, Buffer.from('sdk')]) expect(all).toContain(print(contents));
  });
});
