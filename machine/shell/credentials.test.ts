import { expect, test } from 'bun:test';
import { credentialFor, credentialsFrom, redacted } from './credentials.ts';

const variables = {
  GIT_CREDENTIALS:
    'https://a:1@git.example/team https://b:2@git.example\nhttp://c:3@git.example:8080 nonsense ftp://d:4@x',
  GITHUB_TOKEN: 'ghp',
  GITLAB_TOKEN: 'glp',
};
const passwordFor = (url: string) => credentialFor(credentialsFrom(variables), url)?.password ?? null;

test('a credential goes to exactly its scheme, host and port, the longest path first', () => {
  expect(passwordFor('https://git.example/team/x.git')).toBe('1');
  expect(passwordFor('https://git.example/teams/x.git')).toBe('2');
  expect(passwordFor('https://git.example:443/other')).toBe('2');
  expect(passwordFor('http://git.example:8080/x')).toBe('3');
  for (const url of [
    'http://git.example/x',
    'https://git.example:8443/x',
    'https://git.example.evil.org/x',
    'https://sub.git.example/x',
    'https://evil.org/?https://git.example/',
    'https://git.example@evil.org/x',
    'not a url',
  ]) {
    expect([url, passwordFor(url)]).toEqual([url, null]);
  }
});

test("GitHub's and GitLab's tokens go to their hosts alone", () => {
  expect(passwordFor('https://github.com/a/b.git')).toBe('ghp');
  expect(passwordFor('https://gitlab.com/a/b.git')).toBe('glp');
  for (const url of [
    'http://github.com/a',
    'https://api.github.com/',
    'https://github.com.evil.org/',
    'https://github.com:8443/',
  ]) {
    expect([url, passwordFor(url)]).toEqual([url, null]);
  }
});

test('passwords of addresses are not shown', () => {
  expect(redacted("fatal: unable to access 'https://me:secret@git.example/x'")).toBe(
    "fatal: unable to access 'https://git.example/x'",
  );
});
