/**
 * What is written once, straight into the cloud AgentFS (ADR-046 §5): the organization's tree at its provisioning, and a
 * conversation's at its creation. No turn writes any of it again.
 */
import { defaultConfig, defaultSoul, readAsset } from '../bunfs-assets/assets.ts';
import type { CloudFiles } from '../machine/agentfs/cloud.ts';
import { HranaError } from '../machine/agentfs/hrana.ts';
import type { Specialist } from './domain.ts';
import type { ConversationId } from './ids.ts';
import { Problem } from './problem.ts';

const privateMode = 0o600;
const maxPrivateBytes = 1024 * 1024;
const conversationDirectories = ['state', 'work', 'artifacts/inbound', 'logs'] as const;

type Files = Pick<CloudFiles, 'provision' | 'ensureDirectory' | 'writeFileOnce' | 'readFile' | 'stat'>;

/** Makes what the organization lacks; what it has stays as it is. */
export async function provisionOrganization(files: Files): Promise<void> {
  await files.provision();
  // Written last, so its presence says that the rest is there too.
  if ((await files.stat('/conversations')) !== null) return;
  await files.writeFileOnce('/.env', new Uint8Array(0), privateMode);
  await files.writeFileOnce('/SOUL.md', readAsset(defaultSoul), privateMode);
  await files.writeFileOnce('/config.yaml', readAsset(defaultConfig), privateMode);
  await files.ensureDirectory('/memory');
  await files.ensureDirectory('/skills');
  await files.ensureDirectory('/conversations');
}

/**
 * Writes the tree of a new conversation: the organization's environment, persona and configuration as they are now, the
 * persona with the specialist's own words behind it. May be repeated after a failure.
 * @throws Problem `agentfs-unavailable` when the cloud AgentFS does not take it
 */
export async function establishConversation(files: Files, id: ConversationId, specialist: Specialist): Promise<void> {
  try {
    await writeTree(files, id, specialist);
  } catch (error) {
    if (!(error instanceof HranaError)) throw error;
    const detail = 'The files of a new conversation cannot be written now. Try again later.';
    const problem = new Problem('agentfs-unavailable', detail);
    problem.cause = error;
    throw problem;
  }
}

async function writeTree(files: Files, id: ConversationId, specialist: Specialist): Promise<void> {
  const home = `/conversations/${id}`;
  const [environment, soul, config] = await Promise.all(
    ['/.env', '/SOUL.md', '/config.yaml'].map((path) => files.readFile(path, maxPrivateBytes)),
  );
  // One after the other: each makes the directories above it where they are missing.
  for (const directory of conversationDirectories) await files.ensureDirectory(`${home}/${directory}`);
  await files.writeFileOnce(`${home}/.env`, environment!, privateMode);
  await files.writeFileOnce(`${home}/SOUL.md`, withPersona(soul!, specialist.persona), privateMode);
  await files.writeFileOnce(`${home}/config.yaml`, config!, privateMode);
}

function withPersona(soul: Uint8Array, persona: string): Uint8Array {
  const words = persona.trim();
  if (words === '') return soul;
  return new TextEncoder().encode(`${new TextDecoder().decode(soul).trimEnd()}\n\n${words}\n`);
}
