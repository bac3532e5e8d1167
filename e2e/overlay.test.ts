/** Default skills and quotas as a real Hermes and its tools meet them, over a cold restart and from another conversation. */
import { expect, test } from 'bun:test';
import { Gateway } from './harness/gateway.ts';
import { call, ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

const limitMs = 240_000;
const edited = `---
name: tabular-data
description: Edited by the agent.
---

# Tabular data

Ask for the delimiter first.
`;

interface Turn {
  readonly reply: string;
  /** What the tools answered, in their order. */
  readonly results: readonly string[];
}

/** One message whose turn makes these calls. */
async function turn(
  gateway: Gateway,
  model: ScriptedModel,
  conversation: string,
  calls: readonly (readonly [string, Readonly<Record<string, unknown>>])[],
): Promise<Turn> {
  const text = `turn ${crypto.randomUUID()}`;
  model.on(text, ...calls.map(([name, args]) => call(name, args)), say('done'));
  const from = model.turns.length;
  const { reply } = await gateway.api('expert').say(conversation, text);
  const messages = model.turns.slice(from).at(-1)!.body.messages;
  const results = messages.filter(({ role }) => role === 'tool').map(({ content }) => String(content));
  return { reply: reply.text, results: results.slice(-calls.length) };
}
const shell = (command: string) => ['terminal', { command }] as const;

test(
  'a default skill is read, edited by Hermes and deleted; another conversation and a cold restart have the same',
  async () => {
    const data = scratchDirectory('overlay');
    await using model = ScriptedModel.start();
    const options = {
      dataDirectory: data,
      environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
    };
    const look = shell('ls -A /hermes/skills; head -n 3 /hermes/skills/tabular-data/SKILL.md');
    try {
      let [one, two] = ['', ''];
      {
        await using gateway = await Gateway.start(options);
        one = gateway.conversation;
        await gateway.api('superadmin').post('/v1/specialists', { name: 'Plain', persona: '' });
        two = await gateway.api('expert').createConversation('Plain');
        expect(two).not.toBe(one);
        const before = await turn(gateway, model, one, [
          look,
          ['skills_list', {}],
          ['skill_view', { name: 'tabular-data' }],
          shell("printf 'a;b\\n1;2\\n' > t.csv; python3 /hermes/skills/tabular-data/scripts/profile_csv.py t.csv"),
          shell('echo x >> /hermes/skills/tabular-data/SKILL.md'),
        ]);
        expect(before.results[0]).toContain('files-and-deliverables\\ntabular-data\\n---\\nname: tabular-data');
        expect(before.results[1]).toContain('Compute from CSV and other tables');
        expect(before.results[2]).toContain('wrong more often because of how the file was read');
        expect(before.results[3]).toContain("'b': 1 filled");
        expect(before.results[4]).toContain('Permission denied');

        const changed = await turn(gateway, model, one, [
          ['skill_manage', { action: 'edit', name: 'tabular-data', content: edited }],
          ['skill_manage', { action: 'delete', name: 'files-and-deliverables' }],
          look,
        ]);
        expect(changed.results[0]).toContain('updated');
        expect(changed.results[1]).toContain('deleted');
        expect(changed.results[2]).toContain('description: Edited by the agent.');
        expect(changed.results[2]).not.toContain('files-and-deliverables');
        const other = await turn(gateway, model, two, [look]);
        expect(other.results[0]).toContain('description: Edited by the agent.');
        expect(other.results[0]).not.toContain('files-and-deliverables');
        expect(await gateway.stop()).toBe(0);
      }
      await using gateway = await Gateway.start(options);
      const after = await turn(gateway, model, one, [
        look,
        ['skill_view', { name: 'tabular-data' }],
        ['skills_list', {}],
      ]);
      expect(after.results[0]).toContain('description: Edited by the agent.');
      expect(after.results[0]).not.toContain('files-and-deliverables');
      expect(after.results[1]).toContain('Ask for the delimiter first.');
      expect(after.results[2]).not.toContain('files-and-deliverables');
    } finally {
      removeScratch(data);
    }
  },
  limitMs,
);

test(
  'df shows the quota; a tool that passes it is told so, the turn goes on, and the log says so without a path',
  async () => {
    await using model = ScriptedModel.start();
    const quota = 16 * 1024 * 1024;
    await using gateway = await Gateway.start({
      environment: {
        EDGE_MODEL_URL: model.url,
        EDGE_MODEL: 'scripted',
        EDGE_MODEL_KEY: 'none',
        EDGE_CONVERSATION_BYTES: String(quota),
        EDGE_CONVERSATION_FILES: '200',
        EDGE_MAX_FILE_BYTES: String(10 * 1024 * 1024),
      },
    });
    const { reply, results } = await turn(gateway, model, gateway.conversation, [
      shell('df -B1 --output=size,itotal /workspace | tail -n 1'),
      shell('head -c 9000000 /dev/zero > secret-name-1; head -c 9000000 /dev/zero > secret-name-2'),
      shell('head -c 11000000 /dev/zero > large; rm secret-name-1 secret-name-2; head -c 11000000 /dev/zero > large'),
      shell(
        'rm -f large; for i in $(seq 300); do echo $i > f$i || break; done; rm f*; echo again > again && cat again',
      ),
    ]);
    expect(results[0]).toMatch(new RegExp(`${quota} +200`));
    expect(results[1]).toContain('Disk quota exceeded');
    expect(results[2]).toContain('File too large');
    expect(results[3]).toContain('Disk quota exceeded');
    expect(results[3]).toContain('again');
    expect(reply).toBe('done');
    expect(gateway.log).toContain(`its quota of ${quota} bytes is used up (EDQUOT); EDGE_CONVERSATION_BYTES sets it`);
    expect(gateway.log.match(/is used up/g)?.length).toBe(1);
    expect(gateway.log).not.toContain('secret-name');
  },
  limitMs,
);
