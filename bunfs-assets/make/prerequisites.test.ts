import { expect, test } from 'bun:test';
import { nodeProblem, PrerequisiteError, pythonProblem, requirePrerequisites } from './prerequisites.ts';

const good = { executable: '/p', basePrefix: '/', version: '3.11.2', implementation: 'cpython', venv: true };

test('accepts the Pythons that Hermes runs on', () => {
  for (const version of ['3.11.0', '3.12.9', '3.13.1'])
    expect(pythonProblem('python3', { ...good, version })).toBeNull();
});

test('names the version that was found and the ones that would do', () => {
  for (const version of ['2.7.18', '3.10.14', '3.14.0']) {
    const problem = pythonProblem('python3', { ...good, version });
    expect(problem?.what).toContain(version);
    expect(problem?.fix).toContain('3.11');
  }
});

test('says how to get venv where Debian leaves it out', () => {
  expect(pythonProblem('python3', { ...good, venv: false })?.fix).toContain('apt install python3-venv');
});

test('refuses other implementations of Python', () => {
  expect(pythonProblem('python3', { ...good, implementation: 'pypy' })?.what).toContain('pypy');
});

test('wants Node 20 or later', () => {
  expect(nodeProblem('v20.0.0\n')).toBeNull();
  expect(nodeProblem('v24.1.0\n')).toBeNull();
  expect(nodeProblem('v18.19.0\n')?.what).toBe('Node is v18.19.0; 20 or later is needed.');
  expect(nodeProblem(null)?.fix).toContain('apt install nodejs');
});

test('lists every problem in one message', () => {
  const error = new PrerequisiteError([
    { what: 'A is missing.', fix: 'Get A.' },
    { what: 'B is missing.', fix: 'Get B.' },
  ]);
  for (const part of ['A is missing.', 'Get A.', 'B is missing.', 'Get B.']) expect(error.message).toContain(part);
});

test('finds the real interpreter here, not a shim or a virtual environment', () => {
  const python = requirePrerequisites();
  const said = Bun.spawnSync([
    python.interpreter,
    '-I',
    '-c',
    'import sys; print(sys.prefix == sys.base_prefix, sys.base_prefix)',
  ]);
  expect(said.stdout.toString().trim()).toBe(`True ${python.basePrefix}`);
});
