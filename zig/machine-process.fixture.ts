/** A machine for the tests: run as a program, it holds one conversation with bash in Hermes' place and tells how it went. */
import { readFileSync } from 'node:fs';
import { scriptManifest, spawnHolder, statusField, token } from './holder.fixture.ts';
import { MachineStub } from './machine-stub.fixture.ts';

const binary = process.argv[2] ?? '';
const stub = await MachineStub.listen({ token });
const script = 'cat /workspace/hello.txt; read -r line; exit 6';
const child = spawnHolder([binary, 'holder'], { manifest: scriptManifest({ socket: stub.socket, token, script }) });
const first = await child.line();
if (first === null) throw new Error(await child.stderr);
const pid = await stub.pid.promise;
const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
const uid = statusField(pid, 'Uid');
child.closeInput();
const code = await child.exited;
console.log(JSON.stringify({ pid, command, uid, code, output: `${first}\n` }));
stub.close();
