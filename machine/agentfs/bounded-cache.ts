/**
 * A map of bounded size that forgets what was not used lately. Two generations: when the young one is full it becomes the
 * old one, and the former old one is dropped. What is found in the old one is moved to the young one.
 */
export class BoundedCache<Key, Value> {
  readonly #generationWeight: number;
  readonly #weigh: (value: Value) => number;
  readonly #onDrop: () => void;
  /** How often something was forgotten that nobody took out. */
  drops = 0;
  #young = new Map<Key, Value>();
  #youngWeight = 0;
  #old = new Map<Key, Value>();

  /** Holds at most `weight` in all, as `weigh` counts a value (1 each by default); `onDrop`: values were forgotten. */
  constructor(weight: number, weigh: (value: Value) => number = () => 1, onDrop: () => void = () => undefined) {
    this.#generationWeight = weight / 2;
    this.#weigh = weigh;
    this.#onDrop = onDrop;
  }

  get(key: Key): Value | undefined {
    const young = this.#young.get(key);
    if (young !== undefined) return young;
    const old = this.#old.get(key);
    if (old === undefined) return undefined;
    this.#old.delete(key);
    this.set(key, old);
    return old;
  }

  set(key: Key, value: Value): void {
    const before = this.#young.get(key);
    if (before !== undefined) this.#youngWeight -= this.#weigh(before);
    this.#old.delete(key);
    const weight = this.#weigh(value);
    if (before === undefined && this.#youngWeight + weight > this.#generationWeight) {
      if (this.#old.size > 0) this.#dropped();
      this.#old = this.#young;
      this.#young = new Map();
      this.#youngWeight = 0;
    }
    this.#young.set(key, value);
    this.#youngWeight += weight;
  }

  delete(key: Key): void {
    const before = this.#young.get(key);
    if (before !== undefined) {
      this.#youngWeight -= this.#weigh(before);
      this.#young.delete(key);
    }
    this.#old.delete(key);
  }

  clear(): void {
    this.#young = new Map();
    this.#old = new Map();
    this.#youngWeight = 0;
    this.#dropped();
  }

  #dropped(): void {
    this.drops += 1;
    this.#onDrop();
  }

  get size(): number {
    return this.#young.size + this.#old.size;
  }
}
