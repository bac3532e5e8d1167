/**
 * Serves a whole AgentFS tree with its real owners over FUSE: `tree-server.ts <directory> <mount point>… [-- <command>…]`.
 * The directory holds the database and keeps it; an empty one gets an empty file system. With several mount points each is a
 * mount of its own of the same tree. It says `ready` when it serves. Then it runs the command and ends with its exit code, or,
 * without one, serves until its input ends. To be run by root, in a mount namespace that ends with the test.
 */
import { openFilesIn } from '../../machine/agentfs/local.fixture.ts';
import { TreeView } from '../../machine/agentfs/tree-view.ts';
import { serveMount } from '../../machine/fuse/device.fixture.ts';
import { Gate } from '../../machine/fuse/gate.ts';

const words = process.argv.slice(2);
const end = words.indexOf('--');
const [directory, ...mountPoints] = end < 0 ? words : words.slice(0, end);
const command = end < 0 ? [] : words.slice(end + 1);
if (directory === undefined || mountPoints.length === 0) throw new Error('say a directory and a mount point');

const local = await openFilesIn(directory);
const view = new TreeView(local.files, mountPoints.length === 1 ? 'one' : 'several');
const mounts = mountPoints.map((path) => {
  const gate = new Gate();
  gate.arm(process.pid);
  return serveMount(path, view, gate, { privileged: true });
});
console.log('ready');
const exitCode = await (command.length > 0 ? runCommand() : untilInputEnds());
for (const mount of mounts) await mount.unmount();
await local.close();
process.exit(exitCode);

async function runCommand(): Promise<number> {
  return Bun.spawn(command, { stdin: 'inherit', stdout: 'inherit', stderr: 'inherit' }).exited;
}

async function untilInputEnds(): Promise<number> {
  for await (const _ of Bun.stdin.stream()) void _;
  return 0;
}
