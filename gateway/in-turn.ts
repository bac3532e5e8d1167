export type InTurn = <T>(work: () => Promise<T>) => Promise<T>;

/** Works one after the other, in the order in which they are given. Each answers to who gave it; one that fails ends none behind it. */
export function inTurn(): InTurn {
  let tail: Promise<unknown> = Promise.resolve();
  return (work) => {
    const done = tail.then(work);
    // Whoever gave it has the error.
    tail = done.catch(() => undefined);
    return done;
  };
}
