import { describe, expect, test } from 'bun:test';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Problem } from '../problem.ts';
import { environmentLimits, namesIn, withVariables } from './dotenv.ts';

const python = process.env.EDGE_TEST_PYTHON ?? '';
const hasHermes = existsSync(python);

const write = (variables: Record<string, string | null>, file = '') =>
  Buffer.from(withVariables(Buffer.from(file), variables)).toString();

function refusal(variables: Record<string, string | null>): string {
  try {
    write(variables);
    return 'written';
  } catch (error) {
    if (error instanceof Problem) return error.message;
    throw error;
  }
}

/** Values that have something which a reader of `.env` files may take for more than a character. */
const values: Readonly<Record<string, string>> = {
  PLAIN: 'sk-0123456789abcdefABCDEF',
  EMPTY: '',
  BLANKS: '  between  blanks  ',
  HASH: 'before # not a comment',
  DOLLAR: '$HOME and $(id) and `id`',
  BRACES: '{"a": [1]}',
  EQUALS: 'a=b==c',
  DOUBLE: 'say "yes"',
  SINGLE: "it's",
  ALL: Array.from({ length: 0x5f }, (_, index) => String.fromCharCode(0x20 + index))
    .join('')
    .replace(/["\\]/g, ''),
  URL: 'https://user:pass@host:8443/path?x=1&y=%20#z',
};

describe('the environment file', () => {
  test('has exactly the variables that were said, and keeps those that were said to stay', () => {
    const file = '# of the first day\nexport OLD="kept as it is" # why\nGONE=1\nTWICE=1\nTWICE=2\n';
    expect(namesIn(Buffer.from(file))).toEqual(['GONE', 'OLD', 'TWICE']);
    expect(write({ NEW: 'x', OLD: null, TWICE: null }, file)).toBe(
      `NEW='x'\nexport OLD="kept as it is" # why\nTWICE=2\n`,
    );
    expect(write({})).toBe('');
  });

  test.each([
    [{ 'A B': 'secret-value' }, 'A name has'],
    [{ '1A': 'secret-value' }, 'A name has'],
    [{ '': 'secret-value' }, 'A name has'],
    [{ ['A'.repeat(129)]: 'secret-value' }, 'A name has'],
    [{ 'A\nB': 'secret-value' }, 'A name has'],
    [{ PATH: 'secret-value' }, 'PATH is set'],
    [{ LD_PRELOAD: 'secret-value' }, 'LD_PRELOAD is set'],
    [{ PYTHONPATH: 'secret-value' }, 'PYTHONPATH is set'],
    [{ hermes_home: 'secret-value' }, 'hermes_home is set'],
    [{ EDGE_PRIVATE_NAMES: 'secret-value' }, 'EDGE_PRIVATE_NAMES is set'],
    [{ A: 'secret-value\nB=1' }, 'A: a value is one line'],
    [{ A: 'secret-value\0' }, 'A: a value is one line'],
    [{ A: 'secret-välue' }, 'A: a value is one line'],
    [{ A: 'secret-value\\n' }, 'A: a value is one line'],
    [{ A: 'secret-value $' + '{HOME}' }, 'A: a value is one line'],
    [{ A: `secret-value '"` }, 'A: a value may have single quotes or double quotes'],
    [{ A: 'secret-value'.repeat(2_000) }, 'A: a value may have'],
    [{ A: null }, 'A has no value'],
  ] as const)('refusal %#, without the value', (variables, why) => {
    const said = refusal(variables as Record<string, string | null>);
    expect(said).toStartWith(why);
    expect(said).not.toContain('secret');
  });

  test('a name that every object has is a name like others: its value is looked at', () => {
    for (const text of ['{"constructor": 5}', '{"__proto__": {"a": "secret"}}', '{"constructor": ["secret"]}']) {
      expect(refusal(JSON.parse(text))).toContain(': a value is a string');
    }
    expect(write(JSON.parse('{"__proto__": "x", "constructor": "y"}'))).toBe("__proto__='x'\nconstructor='y'\n");
  });

  test('is bounded', () => {
    const many = (count: number, value: string) =>
      Object.fromEntries(Array.from({ length: count }, (_, index) => [`V${index}`, value]));
    expect(refusal(many(environmentLimits.variables + 1, ''))).toStartWith('There may be');
    expect(refusal(many(100, 'x'.repeat(2_000)))).toStartWith('All variables together');
    expect(refusal({ EDGE_MODEL_KEY: 'may be rotated' })).toBe('written');
  });

  test.skipIf(!hasHermes)('is read by python-dotenv and by Hermes as it was written', () => {
    const script = `
import io, json, sys
from dotenv import dotenv_values
from hermes_cli.config import _parse_env_value, _sanitize_env_lines
text = sys.stdin.read()
lines = text.splitlines(keepends=True)
own = {}
for line in _sanitize_env_lines(lines):
    name, _, value = line.strip().partition('=')
    own[name] = _parse_env_value(value)
print(json.dumps([dotenv_values(stream=io.StringIO(text)), own, _sanitize_env_lines(lines) == lines]))
`;
    const read = Bun.spawnSync([python, '-c', script], {
      stdin: Buffer.from(write(values)),
      env: { PATH: process.env.PATH ?? '', HERMES_HOME: '/nonexistent', HOME: join('/tmp', 'none') },
    });
    expect(read.stderr.toString()).toBe('');
    expect(JSON.parse(read.stdout.toString())).toEqual([values, values, true]);
  });
});
