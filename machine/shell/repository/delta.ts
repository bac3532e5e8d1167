/** Git's deltas: a target made of pieces of a base and of new bytes. */
import { leave } from '../endings.ts';

export function applyDelta(base: Uint8Array, delta: Uint8Array): Uint8Array {
  let position = 0;
  const size = () => {
    let [value, shift, byte] = [0, 1, 0];
    do {
      byte = delta[position++]!;
      value += (byte & 0x7f) * shift;
      shift *= 128;
    } while (byte & 0x80);
    return value;
  };
  const baseSize = size();
  const target = new Uint8Array(size());
  if (baseSize !== base.length) leave('a delta of another base');
  let filled = 0;
  while (position < delta.length) {
    const command = delta[position++]!;
    if (command & 0x80) {
      let [from, length] = [0, 0];
      for (let bit = 0; bit < 4; bit++) if (command & (1 << bit)) from += delta[position++]! * 256 ** bit;
      for (let bit = 0; bit < 3; bit++) if (command & (0x10 << bit)) length += delta[position++]! * 256 ** bit;
      if (length === 0) length = 0x10000;
      target.set(base.subarray(from, from + length), filled);
      filled += length;
    } else {
      target.set(delta.subarray(position, position + command), filled);
      position += command;
      filled += command;
    }
  }
  if (filled !== target.length) leave('a delta that ends elsewhere');
  return target;
}
