/** A machine under load, as a process of its own that a test kills: it says what it is about to do and what is durable, one line each. */
import { openOrganizationFiles } from './sync.ts';

const [launchLine, seedText] = process.argv.slice(2);
const { files, boundary } = await openOrganizationFiles(JSON.parse(launchLine!), {
  log: () => undefined,
  silenceMs: 2_000,
});
let seed = Number(seedText);
const next = (below: number): number => {
  seed = (Math.imul(seed, 1_103_515_245) + 12_345) & 0x7fffffff;
  return seed % below;
};
boundary.begin('conv');
await boundary.firstTouch('conv');
const parent = (await files.find('/conversations/conv/work'))!.ino;
for (let step = 0; ; step++) {
  const name = `${seedText}-${step}`;
  console.log(`create ${name}`);
  const { ino } = await files.names.create({ parent, name }, 0o100644);
  const size = next(4) === 0 ? 300_000 + next(400_000) : next(5_000);
  console.log(`write ${name}`);
  await files.data.write(ino, 0, Buffer.alloc(size, name));
  console.log(`sync ${name}`);
  await files.store.sync();
  console.log(`synced ${name} ${size}`);
  if (next(3) > 0) continue;
  console.log(`end ${name}`);
  const { state } = await boundary.end('conv');
  console.log(`${state === 'clean' ? 'pushed' : 'kept'} ${name}`);
  boundary.begin('conv');
  await boundary.firstTouch('conv');
}
