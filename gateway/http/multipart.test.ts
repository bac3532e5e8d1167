import { describe, expect, test } from 'bun:test';
import { Problem } from '../problem.ts';
import { multipartBoundary, partsOf } from './multipart.ts';

const boundary = 'xYzZY';
interface Read {
  readonly name: string;
  readonly fileName: string | null;
  readonly contentType: string | null;
  readonly bytes: Buffer;
}

async function* cut(body: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < body.length; at += size) yield body.subarray(at, at + size);
}

async function read(body: Uint8Array | string, size = 1 << 20, maxParts = 300): Promise<Read[]> {
  const list: Read[] = [];
  for await (const { content, ...part } of partsOf(cut(Buffer.from(body), size), boundary, maxParts)) {
    const pieces: Uint8Array[] = [];
    for await (const piece of content) pieces.push(piece);
    list.push({ ...part, bytes: Buffer.concat(pieces) });
  }
  return list;
}

const part = (header: string, content: string | Uint8Array = ''): Buffer =>
  Buffer.concat([Buffer.from(`--${boundary}\r\n${header}\r\n\r\n`), Buffer.from(content), Buffer.from('\r\n')]);
const body = (...parts: readonly Uint8Array[]): Buffer => Buffer.concat([...parts, Buffer.from(`--${boundary}--\r\n`)]);
const text = 'Content-Disposition: form-data; name="text"';

const problemOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    (value) => value,
    (error: unknown) => (error instanceof Problem ? error.problem : error),
  );

describe('parts come in order, whole and as they are', () => {
  const noise = crypto.getRandomValues(new Uint8Array(65_536));
  const tricky = Buffer.from(`\r\n--${boundary.slice(0, -1)}\r\n\r\n--\r\n-${boundary}--`);
  const whole = body(
    part(text, 'first\r\nline'),
    part('Content-Disposition: form-data; name="file"; filename="a.bin"\r\nContent-Type: application/x-a', noise),
    part('Content-Disposition: form-data; name="file"; filename=""', tricky),
    part('content-disposition:form-data;name=file;filename=plain.txt;', '').subarray(0, 0),
    part('Content-Disposition: form-data; name="file"; filename="empty"'),
    part(text, 'last'),
  );
  test.each([1, 2, 7, 61, 1_000, 65_536, 1 << 20])('cut into pieces of %d', async (size) => {
    const parts = await read(whole, size);
    expect(parts.map(({ name, fileName, contentType }) => [name, fileName, contentType])).toEqual([
      ['text', null, null],
      ['file', 'a.bin', 'application/x-a'],
      ['file', '', null],
      ['file', 'empty', null],
      ['text', null, null],
    ]);
    expect(parts.map(({ bytes }) => bytes.equals(Buffer.from('first\r\nline')) || bytes.length)).toEqual([
      true,
      65_536,
      tricky.length,
      0,
      4,
    ]);
    expect(parts[1]!.bytes.equals(Buffer.from(noise))).toBe(true);
    expect(parts[2]!.bytes.equals(tricky)).toBe(true);
  });

  test('what browsers and curl make', async () => {
    const form = new FormData();
    form.append('text', 'Grüße\n"x"');
    form.append('file', new Blob(['abc'], { type: 'text/plain' }), 'naïve "name".txt');
    const made = new Response(form);
    const type = made.headers.get('content-type')!;
    const list: string[] = [];
    for await (const { name, fileName, content } of partsOf(made.body!, multipartBoundary(type)!, 10)) {
      let all = '';
      for await (const piece of content) all += Buffer.from(piece).toString();
      list.push(`${name}|${fileName}|${all}`);
    }
    // As the standard of forms has it: a line feed is sent as CRLF.
    expect(list).toEqual(['text|null|Grüße\r\n"x"', 'file|naïve %22name%22.txt|abc']);
    const curl = String.raw`Content-Disposition: form-data; name="file"; filename="a \"b\" \\c.txt"`;
    expect((await read(body(part(curl, 'x'))))[0]?.fileName).toBe(String.raw`a "b" \c.txt`);
    const libraries = `Content-Disposition: form-data; name="file"; filename*=UTF-8''na%C3%AFve%20%22x%22.txt`;
    expect((await read(body(part(libraries, 'x'))))[0]?.fileName).toBe('naïve "x".txt');
  });

  test('a preamble and an epilogue are none of the parts, and no part is none', async () => {
    expect(
      (await read(`hello\r\n${body(part(text, 'x')).toString()}bye`)).map(({ bytes }) => bytes.toString()),
    ).toEqual(['x']);
    expect(await read(`--${boundary}--\r\n`)).toEqual([]);
  });

  test('many small parts in one piece', async () => {
    const many = body(...Array.from({ length: 300 }, (_, index) => part(text, String(index))));
    const parts = await read(many);
    expect(parts.map(({ bytes }) => bytes.toString())).toEqual(
      Array.from({ length: 300 }, (_, index) => String(index)),
    );
  });
});

describe('what cannot be read fails as a whole', () => {
  test.each([
    ['nothing', ''],
    ['no boundary', 'hello'],
    ['another boundary', '--other\r\n\r\n\r\n--other--\r\n'],
    ['cut in a header', `--${boundary}\r\nContent-Dispo`],
    ['cut in a part', `--${boundary}\r\n${text}\r\n\r\nhal`],
    ['cut behind a part', `--${boundary}\r\n${text}\r\n\r\nwhole\r\n--${boundary}`],
    ['no header at all', `--${boundary}\r\n--${boundary}--\r\n`],
    ['a header that never ends', `--${boundary}\r\n${text}\r\n--${boundary}--\r\n`],
    ['no disposition', body(part('Content-Type: text/plain', 'x'))],
    ['an attachment', body(part('Content-Disposition: attachment; name="text"', 'x'))],
    ['no name', body(part('Content-Disposition: form-data', 'x'))],
    ['an open quote', body(part('Content-Disposition: form-data; name="text', 'x'))],
    ['two names', body(part('Content-Disposition: form-data; name="text"; name="file"', 'x'))],
    ['two dispositions', body(part(`${text}\r\nContent-Disposition: form-data; name="file"`, 'x'))],
    ['a file name in Latin-1', body(part("Content-Disposition: form-data; name=file; filename*=iso-8859-1''%E4", 'x'))],
    ['a file name cut in a byte', body(part("Content-Disposition: form-data; name=file; filename*=UTF-8''%C3%", 'x'))],
    ['words behind', body(part('Content-Disposition: form-data; name="text" and more', 'x'))],
    [
      'a header that is not UTF-8',
      Buffer.from(
        body(part('Content-Disposition: form-data; name="file"; filename="?"', 'x')).map((byte) =>
          byte === 63 ? 255 : byte,
        ),
      ),
    ],
    ['base64', body(part(`${text}\r\nContent-Transfer-Encoding: base64`, 'eA=='))],
    ['a bare line feed in a header', body(part('Content-Disposition: form-data; name="text"\nX: y', 'x'))],
  ])('%s', async (_, raw) => {
    expect(await problemOf(read(raw))).toBe('invalid-request');
    expect(await problemOf(read(raw, 3))).toBe('invalid-request');
  });

  test('more parts than allowed, and headers without end', async () => {
    const many = body(...Array.from({ length: 6 }, () => part(text, 'x')));
    expect(await problemOf(read(many, 1 << 20, 5))).toBe('invalid-request');
    expect((await read(many, 1 << 20, 6)).length).toBe(6);
    expect(await problemOf(read(body(part(`${text}\r\nX: ${'y'.repeat(100_000)}`, 'x'))))).not.toBeInstanceOf(Error);
  });

  test('what the body itself throws is thrown on, to the part under way too', async () => {
    async function* breaking() {
      yield Buffer.from(`--${boundary}\r\n${text}\r\n\r\nhal`);
      throw new Problem('body-too-large', 'it is');
    }
    const reading = (async () => {
      for await (const { content } of partsOf(breaking(), boundary, 10)) for await (const _ of content);
    })();
    expect(await problemOf(reading)).toBe('body-too-large');
  });

  test('boundaries', () => {
    expect(multipartBoundary('multipart/form-data; boundary=abc')).toBe('abc');
    expect(multipartBoundary('Multipart/Form-Data; charset=utf-8; boundary="a b:c"')).toBe('a b:c');
    expect(multipartBoundary('application/json; boundary=x')).toBeNull();
    for (const bad of [
      'multipart/form-data',
      'multipart/form-data; boundary=',
      `multipart/form-data; boundary=${'x'.repeat(71)}`,
    ])
      expect(() => multipartBoundary(bad)).toThrow();
  });
});

test('a body that nobody reads is not taken in: at most a few pieces wait', async () => {
  let sent = 0;
  async function* endless() {
    yield Buffer.from(`--${boundary}\r\n${text}\r\n\r\n`);
    for (; sent < 10_000; sent += 1) yield Buffer.alloc(65_536);
  }
  for await (const { content } of partsOf(endless(), boundary, 10)) {
    await Bun.sleep(50);
    expect(sent).toBeLessThan(8);
    let read = 0;
    for await (const piece of content) {
      read += piece.length;
      if (read > 1_000_000) break;
    }
    await Bun.sleep(50);
    expect(sent * 65_536).toBeLessThan(read + 8 * 65_536);
    break;
  }
  expect(sent).toBeLessThan(40);
});
