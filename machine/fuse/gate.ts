/**
 * Who may ask for what. The pid of a request is a thread's, in the PID namespace of whoever called mount(2), which is the
 * machine's: `/proc/<tid>/status` tells Hermes' own threads from every descendant.
 */
import { readFileSync } from 'node:fs';
import { type ViewNode, zoneRules } from '../agentfs/views.ts';
import { opcodes } from './wire.ts';

/** Sent without anybody's name on it: the kernel's own house-keeping. (Write-back of mappings is the other such thing.) */
const fromNobody = new Set<number>([
  opcodes.init,
  opcodes.forget,
  opcodes.batchForget,
  opcodes.release,
  opcodes.releasedir,
  opcodes.flush,
  opcodes.interrupt,
  opcodes.destroy,
  opcodes.notifyReply,
]);
/** Answered to anybody: they tell and change nothing that the caller does not hold open. */
const forAnybody = new Set<number>([
  opcodes.init,
  opcodes.forget,
  opcodes.batchForget,
  opcodes.release,
  opcodes.releasedir,
  opcodes.flush,
  opcodes.interrupt,
  opcodes.destroy,
  opcodes.notifyReply,
  opcodes.statfs,
]);
/** What a bind mount needs of the composition's directories. */
const toMount = new Set<number>([opcodes.lookup, opcodes.getattr, opcodes.access]);
const looks = new Set<number>([
  opcodes.lookup,
  opcodes.getattr,
  opcodes.readlink,
  opcodes.open,
  opcodes.read,
  opcodes.opendir,
  opcodes.readdir,
  opcodes.readdirplus,
  opcodes.access,
  opcodes.lseek,
  opcodes.getxattr,
  opcodes.listxattr,
  opcodes.fsync,
  opcodes.fsyncdir,
]);

export interface Question {
  readonly opcode: number;
  readonly pid: number;
  readonly node: ViewNode;
  /** Whether the node is one of the composition's directories; asked for before arming alone. */
  readonly isRoot: boolean;
  /** For LOOKUP, where the name leads; null when to nothing. */
  readonly leadsTo?: ViewNode['zone'] | null;
  /** An open that asks for writing or truncation. */
  readonly opensToWrite?: boolean;
  /** For READLINK, once it has been read: what the symbolic link says. */
  readonly linksTo?: string;
  /** A WRITE of the kernel's own, of pages that a mapping changed. */
  readonly writesBack?: boolean;
}

type State = { readonly state: 'unarmed' } | { readonly state: 'armed'; readonly tgid: number };

export class Gate {
  #state: State = { state: 'unarmed' };
  readonly #threadGroup: (tid: number) => number | null;

  /** `threadGroup` is replaced in tests alone. */
  constructor(threadGroup: (tid: number) => number | null = threadGroupOf) {
    this.#threadGroup = threadGroup;
  }

  /** Fixes who Hermes is, once, before it is exec'ed. */
  arm(tgid: number): void {
    if (this.#state.state === 'armed') throw new Error('the gate is armed already');
    if (!Number.isInteger(tgid) || tgid < 1) throw new Error(`${tgid} is no process`);
    this.#state = { state: 'armed', tgid };
  }

  get armed(): boolean {
    return this.#state.state === 'armed';
  }

  /** Whether the question may be answered. */
  allows(question: Question): boolean {
    const { opcode, pid, node } = question;
    if (pid === 0) return fromNobody.has(opcode) || (opcode === opcodes.write && question.writesBack === true);
    if (forAnybody.has(opcode)) return true;
    if (this.#state.state === 'unarmed') {
      if (!toMount.has(opcode) || !question.isRoot) return false;
      return opcode !== opcodes.lookup || node.zone === 'root';
    }
    const rules = zoneRules[node.zone];
    if (rules.shared && question.linksTo !== undefined && leadsAway(question.linksTo)) return !this.#isHermes(pid);
    if (node.zone === 'home' && isWayThrough(question)) return true;
    const isChange = !looks.has(opcode) || question.opensToWrite === true;
    if (!rules.onlyHermes && !(isChange && rules.onlyHermesChanges)) return true;
    return this.#isHermes(pid);
  }

  #isHermes(pid: number): boolean {
    if (this.#state.state === 'unarmed') return false;
    // The leader of the group has the group's number, and lives as long as the mount.
    return pid === this.#state.tgid || this.#threadGroup(pid) === this.#state.tgid;
  }
}

/** What a holder has that no tool can write to and that is nobody's secret, beside the shared view itself. */
const followedTo = new Set(['workspace', 'artifacts', 'usr', 'bin', 'sbin', 'lib', 'lib32', 'lib64', 'opt', 'etc']);

/**
 * Whether a link that tools may have made can lead Hermes to its own private files: it opens attachments, `AGENTS.md` and
 * the targets of edits by their paths, and what it reads reaches the model. Each link on the way is asked for, so each is
 * judged alone. `..` is refused whatever it passes: behind another link it climbs from somewhere else than it says.
 */
export function leadsAway(target: string): boolean {
  const names = target.split('/').filter((name) => name !== '' && name !== '.');
  if (names.includes('..')) return true;
  return target.startsWith('/') && !followedTo.has(names[0] ?? '');
}

/** What anybody needs of the home to walk to the skills. */
function isWayThrough({ opcode, leadsTo }: Question): boolean {
  if (opcode === opcodes.lookup) return leadsTo === 'skills';
  return opcode === opcodes.getattr || opcode === opcodes.access;
}

/** The thread group of a thread, or null when there is no such thread (any more). */
export function threadGroupOf(tid: number): number | null {
  let status: string;
  try {
    status = readFileSync(`/proc/${tid}/status`, 'latin1');
  } catch {
    // Gone, or never visible from here: then it is nobody that may ask.
    return null;
  }
  const match = /^Tgid:\t(\d+)$/m.exec(status);
  return match ? Number(match[1]) : null;
}
