/**
 * For tests: what a crash may leave of a model. Operations are grouped, and a group is lost or kept as a whole: what is left is
 * what was there after some operation since all was last made sure.
 */
import type { ModelNode } from './model.fixture.ts';

type State = Pick<ModelNode, 'entries' | 'nlink' | 'mode' | 'uid' | 'gid' | 'mtime' | 'data'>;
/** Every node that a name leads to, as it was. */
export type Snapshot = ReadonlyMap<ModelNode, State>;

export class History {
  readonly #root: ModelNode;
  #snapshots: Snapshot[] = [];

  constructor(root: ModelNode) {
    this.#root = root;
    this.sure();
  }

  /** Something has changed. */
  changed(): void {
    this.#snapshots.push(snapshotOf(this.#root));
  }

  /** What there is outlives a crash from now on. */
  sure(): void {
    this.#snapshots = [snapshotOf(this.#root)];
  }

  /** What may be left, the latest first. */
  get snapshots(): readonly Snapshot[] {
    return this.#snapshots.toReversed();
  }

  /** Makes the model what a crash left, and forgets the rest. */
  restore(snapshot: Snapshot): void {
    for (const [node, state] of snapshot) Object.assign(node, state, { entries: new Map(state.entries) });
    this.sure();
  }
}

/** Of what has several names, the node is there once. */
export function snapshotOf(root: ModelNode): Snapshot {
  const snapshot = new Map<ModelNode, State>();
  const add = (node: ModelNode) => {
    if (snapshot.has(node)) return;
    const { nlink, mode, uid, gid, mtime, data } = node;
    snapshot.set(node, { entries: new Map(node.entries), nlink, mode, uid, gid, mtime, data });
    for (const child of node.entries.values()) add(child);
  };
  add(root);
  return snapshot;
}
