/** A directory of 100,000 names, in a holder: made, listed in every way, searched, changed while it is read, removed. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { ToolShell } from './harness/tool-shell.ts';

const limitMs = 900_000;
const names = 100_000;
/** A tool's time is limited: so many names come and go in one call. */
const namesOfCall = 10_000;

let shell: ToolShell;
beforeAll(async () => {
  shell = await ToolShell.start();
}, limitMs);
afterAll(async () => {
  await shell?.[Symbol.asyncDispose]();
}, limitMs);

async function run(script: string): Promise<string> {
  const { output, exitCode } = await shell.run('large', script);
  expect(exitCode, output).toBe(0);
  return output;
}

test(
  'a directory of 100,000 names',
  async () => {
    for (let from = 1; from < names; from += namesOfCall) {
      await run(`seq -f 'entry-%06.0f' ${from} ${from + namesOfCall - 1} | xargs touch`);
    }
    expect(await run("ls | wc -l; ls -f | grep -c entry; ls | sed -n '1p;$p'; ls | sort -u | wc -l")).toBe(
      '100000\n100000\nentry-000001\nentry-100000\n100000\n',
    );
    expect(
      await run("ls -l | awk '/entry/ && $5 == 0' | wc -l; find . -name '*99' | wc -l; ls entry-05000? | wc -l"),
    ).toBe('100000\n1000\n10\n');
    const changed =
      'ls -f | grep -c entry > count & for i in $(seq 100); do mv entry-000001 moved; mv moved entry-000001; done; wait';
    expect(await run(`${changed}; test $(cat count) -ge 99999 && echo listed; rm count; ls | wc -l`)).toBe(
      'listed\n100000\n',
    );
    for (let from = 0; from < names / namesOfCall; from += 1) {
      await run(`find . -name 'entry-*${from}' -delete`);
    }
    expect(await run('ls | wc -l; cd .. && rmdir large && mkdir large && echo gone')).toBe('0\ngone\n');
  },
  limitMs,
);
