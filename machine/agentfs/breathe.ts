/**
 * The database engine runs in microtasks: a long series of statements would let nothing else of the machine run, not even
 * the bytes of a conversation. Whoever does a long series lets the others run now and then; the store's lock stays held.
 */
export function breathe(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
