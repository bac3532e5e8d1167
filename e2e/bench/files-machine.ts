/**
 * A machine for `bench files` and `bench fairness`: the organization's files, holders and work boundaries are the real ones; in
 * Hermes' place each holder runs `work/files.py`. One JSON line on standard input says where it lives, each later one what to do.
 */
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { sealedMemfd } from '../../bunfs-assets/memfd.ts';
import { listenForHolders } from '../../machine/holders/holder-socket.ts';
import type { Holder } from '../../machine/holders/holders.ts';
import { formatManifest } from '../../machine/holders/manifest.ts';
import { createStartHolder } from '../../machine/holders/start.ts';
import { HostUids } from '../../machine/holders/uids.ts';
import { openOrganizationFiles } from '../../machine/sync.ts';
import { repository } from '../harness/executable.ts';
import { linesOf } from '../harness/lines.ts';
import { descendants } from '../harness/processes.ts';
import { type MachineOrder, type MachineStart, orderSchema, startSchema } from './files-protocol.ts';
import { orderLine, workDirectory } from './worker.ts';

const log = (line: string) => console.error(`machine: ${line}`);
const say = (line: object) => process.stdout.write(`${JSON.stringify(line)}\n`);

const lines = linesOf(Bun.stdin.stream());
const start = v.parse(startSchema, JSON.parse((await lines.next()).value ?? ''));
const machine = await startMachine(start);
say({ ready: true });
for await (const line of lines) {
  const order = v.parse(orderSchema, JSON.parse(line));
  // At once: one holder's work goes on while another's is ordered.
  void machine.obey(order).then(
    (answer) => say({ id: order.id, answer }),
    (error: unknown) => say({ id: order.id, failure: String(error) }),
  );
}
await machine.close();
process.exit(0);

async function startMachine({ directory, agentfs }: MachineStart) {
  mkdirSync(directory, { recursive: true });
  const { files, ledger, boundary } = await openOrganizationFiles({
    agentfs,
    replicaDirectory: join(directory, 'replica'),
  });
  const socket = listenForHolders(join(directory, 'fuse.sock'));
  const startHolder = createStartHolder({
    inputs: {
      confinedExec: join(repository, 'build/assets/confined-exec.bin'),
      certificates: '',
      caBundle: sealedMemfd('ca-bundle', Buffer.from('none\n')),
      environment: sealedMemfd('environment', Buffer.from('HOME=/tmp\0PATH=/usr/bin:/bin\0LANG=C.UTF-8\0')),
      startScript: sealedMemfd('start-script', Buffer.from('print()\n')),
      manifest: ({ gitSocket: _, ...holder }) =>
        sealedMemfd(
          'manifest',
          Buffer.from(
            formatManifest({
              ...holder,
              binds: [
                { source: '/usr', target: '/usr', optional: false },
                { source: workDirectory, target: '/opt/bench', optional: false },
              ],
              program: '/usr/bin/python3',
              args: ['/opt/bench/files.py'],
              // The native git is one of the programs that are measured.
              git: null,
            }),
          ),
        ),
    },
    socket,
    uids: new HostUids(),
    cgroups: null,
    sessiondb: agentfs,
    files,
    ledger,
    boundary,
    onEnd: () => undefined,
    onSessiondb: () => undefined,
    log,
  });
  const holders = new Map<string, { holder: Holder; lines: AsyncGenerator<string> }>();

  async function holderOf(conversation: string) {
    const here = holders.get(conversation);
    if (here) return here;
    const started = await startHolder(conversation, null, holders.size + 1);
    if (started.outcome !== 'started') throw new Error(`no holder: ${started.detail}`);
    const one = { holder: started.holder, lines: linesOf(outputOf(started.holder)) };
    holders.set(conversation, one);
    return one;
  }

  return {
    async obey(order: MachineOrder): Promise<unknown> {
      if (order.kind === 'work') {
        const { holder, lines: said } = await holderOf(order.conversation);
        await holder.child.write(Buffer.from(orderLine(order.work, '/workspace', order.arguments)));
        const { value } = await said.next();
        if (value === undefined) throw new Error(`the holder ended: ${holder.child}`);
        return JSON.parse(value);
      }
      if (order.kind === 'begin') return boundary.begin(order.conversation);
      if (order.kind === 'end') return boundary.end(order.conversation);
      return memory();
    },
    async close() {
      for (const { holder } of holders.values()) {
        holder.retire();
        await holder.ended;
      }
      socket.stop();
      await boundary.close();
    },
  };
}

function outputOf(holder: Holder): ReadableStream<Uint8Array> {
  return new ReadableStream({
    async pull(controller) {
      const bytes = await holder.child.peek();
      if (!bytes) {
        controller.close();
        return;
      }
      holder.child.take();
      controller.enqueue(bytes);
    },
  });
}

/** MB that this process has, and had at most; processor time of it and of the relays. */
function memory(): { rssMb: number; peakMb: number; cpuMs: number; relayMs: number } {
  const status = readFileSync('/proc/self/status', 'latin1');
  const field = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(status)?.[1]) / 1024;
  const { user, system } = process.cpuUsage();
  return { rssMb: field('VmRSS'), peakMb: field('VmHWM'), cpuMs: (user + system) / 1000, relayMs: relayMs() };
}

function relayMs(): number {
  const stats = descendants(process.pid).map(({ pid }) => readFileSync(`/proc/${pid}/stat`, 'latin1'));
  const relays = stats.filter((stat) => stat.includes('(edge-relay)'));
  const ticks = relays.map((stat) => stat.slice(stat.lastIndexOf(')') + 2).split(' '));
  // A tick is 10 ms on every Linux that we run on.
  return ticks.reduce((sum, fields) => sum + 10 * (Number(fields[11]) + Number(fields[12])), 0);
}
