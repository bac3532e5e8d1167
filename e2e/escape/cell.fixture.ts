/**
 * A conversation that tries to get out, for the escape suite: one real gateway and holder a test file, secrets planted
 * around it, and every attempt made by a real tool that the scripted model calls.
 */
import { setDefaultTimeout } from 'bun:test';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { readRuntime } from '../../bunfs-assets/runtime.ts';
import { CloudFiles } from '../../machine/agentfs/cloud.ts';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { builtExecutable, builtRuntime, plainEnvironment, repository } from '../harness/executable.ts';
import { Gateway } from '../harness/gateway.ts';
import { hermesProcesses } from '../harness/holders.ts';
import { call, ScriptedModel, type Step, say } from '../harness/model.ts';
import type { ProcessInfo } from '../harness/processes.ts';
import { requireProgram } from '../harness/programs.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';

requireProgram('curl');
export const limitMs = 180_000;
setDefaultTimeout(limitMs);

/** Text that stands in exactly one place, which no attempt may carry anywhere else. */
export interface Markers {
  /** The key of the model: in the private environment of Hermes. */
  readonly key: string;
  /** In the conversation's `.env`, as in the organization's. */
  readonly dotenv: string;
  /** In the neighbour's workspace. */
  readonly neighbour: string;
  /** In a file of the host that everybody may read. */
  readonly host: string;
  /** In the environment of the gateway itself. */
  readonly gateway: string;
}

export interface Ran {
  readonly output: string;
  readonly code: number;
}

export interface CellOptions {
  readonly environment?: Readonly<Record<string, string>>;
  /** Without, the conversation runs alone. */
  readonly neighbour?: boolean;
  /** The gateway runs as this ordinary user instead of root. */
  readonly user?: number;
}

const terminalResult = v.looseObject({ output: v.string(), exit_code: v.number() });

export class Cell {
  readonly gateway: Gateway;
  readonly model: ScriptedModel;
  readonly markers: Markers;
  /** On the host, with the host's own secrets and the data directory. */
  readonly scratch: string;
  conversation = '';
  /** Another conversation of the same organization, with a running agent. */
  neighbour = '';
  #steps = 0;
  readonly #elsewhere: string[] = [];
  readonly #programs = new Map<string, string>();
  readonly #server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: ({ url }) => new Response(this.#programs.get(new URL(url).pathname.slice(1)) ?? null),
  });
  #answers: Promise<ReadonlyMap<string, string>> | null = null;

  private constructor(gateway: Gateway, model: ScriptedModel, markers: Markers, scratch: string) {
    this.gateway = gateway;
    this.model = model;
    this.markers = markers;
    this.scratch = scratch;
  }

  static async start(options: CellOptions = {}): Promise<Cell> {
    const mark = (name: string) => `${name}-marker-${crypto.randomUUID()}`;
    const markers: Markers = {
      key: `sk-${mark('key')}`,
      dotenv: mark('dotenv'),
      neighbour: mark('neighbour'),
      host: mark('host'),
      gateway: mark('gateway'),
    };
    const scratch = scratchDirectory('esc');
    writeFileSync(join(scratch, 'host-secret'), `${markers.host}\n`, { mode: 0o644 });
    const data = join(scratch, 'data');
    await plant(data, `PLANTED_API_KEY=${markers.dotenv}\n`);
    const model = ScriptedModel.start();
    try {
      const gateway = await Gateway.start({
        dataDirectory: data,
        ...(options.user === undefined ? {} : { through: asUser(options.user, scratch) }),
        environment: {
          EDGE_MODEL_URL: model.url,
          EDGE_MODEL: 'scripted',
          EDGE_MODEL_KEY: markers.key,
          UNRELATED_SECRET: markers.gateway,
          ...options.environment,
        },
      });
      const cell = new Cell(gateway, model, markers, scratch);
      // Not the demo's own conversation, which was established before its organization had anything to copy.
      const api = gateway.api('expert');
      cell.conversation = await api.createConversation('Eleanora');
      await api.say(cell.conversation, 'hello');
      if (options.neighbour !== false) {
        cell.neighbour = await api.createConversation('Eleanora');
        await cell.tool(
          'terminal',
          { command: `echo ${markers.neighbour} > private.txt; cp private.txt /artifacts/` },
          cell.neighbour,
        );
      }
      return cell;
    } catch (error) {
      await model.stop();
      removeScratch(scratch);
      throw error;
    }
  }

  async stop(): Promise<void> {
    await this.gateway[Symbol.asyncDispose]();
    await this.model.stop();
    await this.#server.stop(true);
    removeScratch(this.scratch);
  }

  /** Stops the gateway and reads private files of the conversation as they are stored then. */
  async stored(...names: readonly string[]): Promise<string[]> {
    await this.gateway.stop();
    return withFiles(this.gateway.dataDirectory, async (files) => {
      const read = async (name: string) =>
        new TextDecoder().decode((await files.readFile(`/conversations/${this.conversation}/${name}`, 1 << 20))!);
      return Promise.all(names.map(read));
    });
  }

  /** Hermes of this conversation and of the neighbour, in the order in which they were started. */
  hermes(): ProcessInfo[] {
    return hermesProcesses(this.gateway.pid).toSorted((a, b) => a.startTicks - b.startTicks);
  }

  /** What a tool answered to the model that called it. */
  async tool(name: string, args: Readonly<Record<string, unknown>>, conversation = this.conversation): Promise<string> {
    const [result] = await this.turn([call(name, args)], conversation);
    return result!;
  }

  /** One turn in which the model takes these steps; what the tools answered. */
  async turn(steps: readonly Step[], conversation = this.conversation): Promise<string[]> {
    this.#steps += 1;
    const words = `attempt ${this.#steps}.`;
    if (conversation !== this.conversation) this.#elsewhere.push(words);
    this.model.on(words, ...steps, say('tried'));
    await this.gateway
      .api('expert')
      .say(conversation, words)
      .catch((error: unknown) => {
        throw new Error(`${String(error)}\n${this.gateway.log.slice(-3000)}`);
      });
    const last = this.model.turns.findLast(({ body }) =>
      body.messages.some(({ role, content }) => role === 'user' && JSON.stringify(content).includes(words)),
    )!;
    const from = last.body.messages.findLastIndex(({ role }) => role === 'user');
    return last.body.messages.slice(from).flatMap(({ role, content }) => (role === 'tool' ? [String(content)] : []));
  }

  /**
   * Run by bash in the terminal tool. Fetched from the test, because Hermes refuses some commands by their words, and looks at
   * long ones for many seconds: what is tried here are the walls behind that.
   */
  shell(script: string, conversation?: string): Promise<Ran> {
    return this.#run('bash', script, conversation);
  }

  /** What a Python program in the terminal tool printed; `prelude` below is in front of it. */
  async python(source: string, conversation?: string): Promise<string> {
    return (await this.#run('python3', `${prelude}\n${source}`, conversation)).output;
  }

  async #run(program: 'bash' | 'python3', source: string, conversation?: string): Promise<Ran> {
    const name = `attempt-${this.#steps}`;
    this.#programs.set(name, `${source}\n`);
    const url = `http://127.0.0.1:${this.#server.port}/${name}`;
    const command = `curl -sSfo /tmp/attempt ${url} && ${program} /tmp/attempt 2>&1`;
    const said = await this.tool('terminal', { command }, conversation);
    const { output, exit_code: code } = v.parse(terminalResult, JSON.parse(said));
    return { output: output.trimEnd(), code };
  }

  /** What one expression of the same comes to; see `tried` in the prelude. */
  tried(expression: string): Promise<string> {
    return this.python(`print(tried(lambda: ${expression}))`);
  }

  /** The same for many of them in one turn, each in a process of its own. */
  async triedAll(expressions: readonly string[]): Promise<string[]> {
    return JSON.parse(await this.python(eachTried(expressions))) as string[];
  }

  /**
   * What one of `planned` comes to. The first that is asked for runs all of them, in one turn: a turn costs more than a hundred
   * attempts.
   */
  async answer(expression: string): Promise<string> {
    this.#answers ??= this.triedAll(plan).then((all) => new Map(all.map((one, index) => [plan[index]!, one])));
    const found = (await this.#answers).get(expression);
    if (found === undefined) throw new Error(`nobody planned ${expression}`);
    return found;
  }

  /** The text that left the holder: everything that tools told the model, in every request. */
  told(): string {
    return this.model.requests.all.map(({ raw }) => raw).join('\n');
  }

  /** The markers that are where they must not be, with the place. */
  async leaks(): Promise<string[]> {
    const told = this.told();
    const files = this.conversation === '' ? '' : (await this.shell(searchFor(this.markers))).output;
    return Object.entries(this.markers).flatMap(([name, marker]) => {
      // What the neighbour's own tools wrote is in the neighbour's own requests.
      const own = name === 'neighbour' ? this.#toldHere() : told;
      return [
        ...(own.includes(marker) ? [`${name} was told to the model`] : []),
        ...(this.gateway.log.includes(marker) ? [`${name} is in the log`] : []),
        ...(files.includes(`found ${name}\n`) || files.endsWith(`found ${name}`)
          ? [`${name} is in a file of the holder`]
          : []),
      ];
    });
  }

  /** As `told`, without what was told in the neighbour's turns. */
  #toldHere(): string {
    const here = this.model.requests.all.filter(({ raw }) => !this.#elsewhere.some((words) => raw.includes(words)));
    return here.map(({ raw }) => raw).join('\n');
  }
}

/** Looks for the markers without saying them: by the digits behind a word that is put together inside. */
function searchFor(markers: Markers): string {
  const each = Object.entries(markers).map(([name, marker]) => {
    const middle = Math.floor(marker.length / 2);
    const halves = `"${marker.slice(0, middle)}""${marker.slice(middle)}"`;
    return `grep -rqs -e ${halves} /workspace /artifacts /tmp /hermes/skills && echo found ${name}`;
  });
  return `${each.join('\n')}\ntrue`;
}

/**
 * An ordinary user as a host has them: it may open /dev/fuse, which needs a mount namespace of its own here, and can read the
 * build and its Python, wherever they lie.
 */
function asUser(user: number, scratch: string) {
  const { basePrefix } = readRuntime(builtRuntime());
  const script = `
    chmod 755 "$1" && chown -R ${user}:${user} "$1/data" && mkdir "$1/dev" "$1/dist" "$1/home" && chown ${user} "$1/home" &&
    mount -t tmpfs -o mode=755 fuse "$1/dev" && mknod -m 666 "$1/dev/fuse" c 10 229 && mount --bind "$1/dev/fuse" /dev/fuse &&
    mount --bind "$2" "$1/dist" &&
    case "$3" in /root/*)
      mkdir "$1/python" && mount --bind "$3" "$1/python" && mount -t tmpfs -o mode=755 root /root && mkdir -p "$3" &&
      mount --bind "$1/python" "$3";;
    esac && export HOME="$1/home" && shift 3 && cd / &&
    exec setpriv --reuid ${user} --regid ${user} --clear-groups "$@"`;
  return {
    command: ['unshare', '-m', 'sh', '-c', script, 'sh', scratch, join(repository, 'dist'), basePrefix],
    executable: join(scratch, 'dist/edge-gateway'),
  };
}

/** The organization's files by an authority of their own, while no gateway runs on this data directory. */
async function withFiles<T>(data: string, work: (files: CloudFiles) => Promise<T>): Promise<T> {
  const socket = join(data, 'escape.sock');
  const token = 'p'.repeat(32);
  const child = Bun.spawn([builtExecutable(), 'authority', '--data', join(data, 'authority'), '--socket', socket], {
    env: plainEnvironment(),
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'inherit',
  });
  try {
    child.stdin.write(`${JSON.stringify({ tokens: { agentfs: token, sessiondb: token } })}\n`);
    await child.stdin.flush();
    await child.stdout.getReader().read();
    return await work(new CloudFiles(new HranaDatabase({ url: 'http://localhost/agentfs', token, socket })));
  } finally {
    child.stdin.end();
    await child.exited;
  }
}

/** Writes the organization's `.env` before its first start: nothing but an administrator's hand would. */
async function plant(data: string, dotenv: string): Promise<void> {
  mkdirSync(join(data, 'authority'), { recursive: true, mode: 0o700 });
  writeFileSync(join(data, 'edge-gateway.json'), `${JSON.stringify({ program: 'edge-gateway', format: 1 })}\n`);
  await withFiles(data, async (files) => {
    await files.provision();
    await files.writeFileOnce('/.env', Buffer.from(dotenv), 0o600);
  });
}

const plan: string[] = [];

/** Rows of a table of attempts (what, expression, answer), to be asked for with {@link Cell.answer}. */
export function planned<Row extends readonly [what: string, expression: string, ...rest: unknown[]]>(
  ...rows: readonly Row[]
): Row[] {
  plan.push(...rows.map(([, expression]) => expression));
  return [...rows];
}

/** Prints a JSON list of what each expression comes to. A program that is killed says by which signal. */
export function eachTried(expressions: readonly string[]): string {
  return `
import json
answers = []
for expression in json.loads(${JSON.stringify(JSON.stringify(expressions))}):
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        try: answer = tried(lambda: eval(expression))
        except BaseException as e: answer = repr(e)
        os.write(w, str(answer).encode()[:4096]); os._exit(0)
    os.close(w)
    with os.fdopen(r, 'rb') as f: text = f.read().decode()
    status = os.waitpid(pid, 0)[1]
    answers.append('signal %d' % os.WTERMSIG(status) if os.WIFSIGNALED(status) else text)
print(json.dumps(answers))`;
}

/** `tried(f)`: what `f` answers, or the name of its error. `call(name, …)`: a system call by its name. */
export const prelude = `
import ctypes, errno, os, platform, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
def tried(f):
    try:
        answer = f()
        return 'done' if answer is None else answer
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e))
def checked(result):
    if result == -1: raise OSError(ctypes.get_errno(), 'refused')
    return result
X86 = platform.machine() == 'x86_64'
NUMBERS = dict(
    ptrace=(101, 117), process_vm_readv=(310, 270), process_vm_writev=(311, 271), pidfd_open=(434, 434), pidfd_getfd=(438, 438),
    pidfd_send_signal=(424, 424), kcmp=(312, 272), process_madvise=(440, 440), process_mrelease=(448, 448), move_pages=(279, 239),
    migrate_pages=(256, 238), mount=(165, 40), umount2=(166, 39), pivot_root=(155, 41), chroot=(161, 51), open_tree=(428, 428),
    move_mount=(429, 429), fsopen=(430, 430), fsconfig=(431, 431), fsmount=(432, 432), fspick=(433, 433), mount_setattr=(442, 442),
    statmount=(457, 457), listmount=(458, 458), open_tree_attr=(467, 467), unshare=(272, 97), setns=(308, 268), clone=(56, 220),
    clone3=(435, 435), sethostname=(170, 161), setdomainname=(171, 162), personality=(135, 92), keyctl=(250, 219), add_key=(248, 217),
    request_key=(249, 218), userfaultfd=(323, 282), open_by_handle_at=(304, 265), name_to_handle_at=(303, 264),
    io_uring_setup=(425, 425), io_uring_enter=(426, 426), io_uring_register=(427, 427), bpf=(321, 280), perf_event_open=(298, 241),
    kexec_load=(246, 104), kexec_file_load=(320, 294), init_module=(175, 105), finit_module=(313, 273), delete_module=(176, 106),
    reboot=(169, 142), swapon=(167, 224), swapoff=(168, 225), acct=(163, 89), quotactl=(179, 60), syslog=(103, 116),
    settimeofday=(164, 170), clock_settime=(227, 112), adjtimex=(159, 171), fanotify_init=(300, 262), iopl=(172, -1), ioperm=(173, -1),
    modify_ldt=(154, -1), vhangup=(153, 58), prlimit64=(302, 261), capset=(126, 91), setgroups=(116, 159), setuid=(105, 146),
    seccomp=(317, 277), future=(999, 999),
)
def call(name, *args):
    number = NUMBERS[name][0 if X86 else 1] if isinstance(name, str) else name
    if number < 0: raise OSError(errno.ENOSYS, 'not on this processor')
    return checked(libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args]))
def read(path):
    with open(path, 'rb', 0) as f: return f.read(65536)
def write(path, data=b'x'):
    fd = os.open(path, os.O_WRONLY)
    try: return os.write(fd, data)
    finally: os.close(fd)
HERMES = 2  # In the holder's PID namespace init is 1 and Hermes its first child.
`;
