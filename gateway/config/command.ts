/** The command `edge-gateway config`. */
import { parseArgs } from 'node:util';
import { readSettings } from './configuration.ts';
import { type SettingName, settingNames, settings } from './settings.ts';

/** Lists all settings with meaning, default and the value in force; a secret is only said to be set. */
export async function runConfig(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({ args: [...argv], options: { config: { type: 'string' } }, strict: true });
  const texts = readSettings(process.env, values.config ?? null);
  console.log('Settings, from the environment or from --config FILE (one JSON object of these names):\n');
  for (const name of settingNames) console.log(line(name, texts.get(name)));
  return 0;
}

function line(name: SettingName, given: string | undefined): string {
  const { meaning, default: fallback, ...rest } = settings[name];
  const now = given === undefined ? '' : `\n    now      ${'secret' in rest ? '(set)' : given}`;
  return `${name}\n    ${meaning}\n    default  ${fallback ?? '(unset)'}${now}`;
}
