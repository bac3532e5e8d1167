/** The little of protobuf that the sync protocol needs: unsigned varints and length-delimited fields. */

const MAX_VARINT_BYTES = 8;

export class ProtobufError extends Error {}

/** Field number → last value given. Varints above 2^53 and wire types other than 0 and 2 are errors. */
export type Fields = Map<number, number | Uint8Array>;

/** @throws ProtobufError on anything that is not a well-formed message */
export function decodeMessage(bytes: Uint8Array): Fields {
  const fields: Fields = new Map();
  let at = 0;
  const varint = (): number => {
    let result = 0;
    let factor = 1;
    for (let length = 0; length < MAX_VARINT_BYTES; length++) {
      const byte = bytes[at++];
      if (byte === undefined) throw new ProtobufError('a varint is cut off');
      result += (byte & 127) * factor;
      if (byte < 128) {
        if (!Number.isSafeInteger(result)) break;
        return result;
      }
      factor *= 128;
    }
    throw new ProtobufError('a varint is too large');
  };
  while (at < bytes.length) {
    const key = varint();
    const field = Math.floor(key / 8);
    if (field === 0) throw new ProtobufError('a field has number 0');
    switch (key % 8) {
      case 0:
        fields.set(field, varint());
        break;
      case 2: {
        const length = varint();
        if (length > bytes.length - at) throw new ProtobufError('a field is cut off');
        fields.set(field, bytes.subarray(at, at + length));
        at += length;
        break;
      }
      default:
        throw new ProtobufError('an unknown wire type');
    }
  }
  return fields;
}

/** Bytes that `value` takes as a varint. */
export function varintLength(value: number): number {
  let length = 1;
  for (let rest = value; rest >= 128; rest = Math.floor(rest / 128)) length++;
  return length;
}

/** Writes `value` as a varint and returns the position behind it. */
export function writeVarint(target: Uint8Array, at: number, value: number): number {
  let rest = value;
  let position = at;
  while (rest >= 128) {
    target[position++] = (rest % 128) | 128;
    rest = Math.floor(rest / 128);
  }
  target[position++] = rest;
  return position;
}

/** A message of varint and bytes fields in the given order; varints of 0 are left out, as is usual. */
export function encodeMessage(fields: readonly (readonly [number, number | Uint8Array])[]): Uint8Array {
  const out: number[] = [];
  const varint = (value: number): void => {
    let rest = value;
    while (rest >= 128) {
      out.push((rest % 128) | 128);
      rest = Math.floor(rest / 128);
    }
    out.push(rest);
  };
  for (const [field, value] of fields) {
    if (typeof value === 'number') {
      if (value === 0) continue;
      varint(field * 8);
      varint(value);
    } else {
      varint(field * 8 + 2);
      varint(value.length);
      for (const byte of value) out.push(byte);
    }
  }
  return Uint8Array.from(out);
}
