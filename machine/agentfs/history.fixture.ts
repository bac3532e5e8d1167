/**
 * For tests: what a crash may leave of a model. Names and attributes are those after some operation since they were last made
 * sure; the contents of each file are some of those that it had since it was last made sure.
 */
import type { ModelNode } from './model.fixture.ts';

type Attributes = Pick<ModelNode, 'entries' | 'nlink' | 'mode' | 'uid' | 'gid' | 'mtime'>;
/** Every node that a name leads to, as it was. */
export type Snapshot = ReadonlyMap<ModelNode, Attributes>;

export class History {
  readonly #root: ModelNode;
  #snapshots: Snapshot[] = [];
  readonly #contents = new Map<ModelNode, Uint8Array[]>();

  constructor(root: ModelNode) {
    this.#root = root;
    this.sureOfNames();
  }

  /** Names or attributes have changed. */
  changed(): void {
    this.#snapshots.push(snapshotOf(this.#root));
  }

  /** The contents of a file have changed. */
  written(node: ModelNode): void {
    const versions = this.#contents.get(node) ?? [new Uint8Array(0)];
    if (versions.at(-1) !== node.data) versions.push(node.data);
    this.#contents.set(node, versions);
    // What is written may or may not be there, and so its time.
    if (this.#snapshots.at(-1)?.get(node)?.mtime !== node.mtime) this.changed();
  }

  /** All names, as they are, outlive a crash from now on. */
  sureOfNames(): void {
    this.#snapshots = [snapshotOf(this.#root)];
  }

  /** So do the contents of a file. */
  sureOf(node: ModelNode): void {
    this.#contents.set(node, [node.data]);
  }

  sureOfAll(): void {
    this.sureOfNames();
    for (const node of this.#contents.keys()) this.sureOf(node);
  }

  /** What may be left, the latest first. */
  get snapshots(): readonly Snapshot[] {
    return this.#snapshots.toReversed();
  }

  contents(node: ModelNode): readonly Uint8Array[] {
    return (this.#contents.get(node) ?? [new Uint8Array(0)]).toReversed();
  }

  /** Makes the model what a crash left, and forgets the rest. */
  restore(snapshot: Snapshot, contents: ReadonlyMap<ModelNode, Uint8Array>): void {
    for (const [node, attributes] of snapshot)
      Object.assign(node, attributes, { entries: new Map(attributes.entries) });
    this.#contents.clear();
    for (const [node, data] of contents) {
      node.data = data;
      this.sureOf(node);
    }
    this.sureOfNames();
  }
}

function snapshotOf(root: ModelNode): Snapshot {
  const snapshot = new Map<ModelNode, Attributes>();
  const add = (node: ModelNode) => {
    if (snapshot.has(node)) return;
    const { nlink, mode, uid, gid, mtime } = node;
    snapshot.set(node, { entries: new Map(node.entries), nlink, mode, uid, gid, mtime });
    for (const child of node.entries.values()) add(child);
  };
  add(root);
  return snapshot;
}
