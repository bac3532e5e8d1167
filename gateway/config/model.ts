/**
 * Which model Hermes uses, as variables of its private environment: config.yaml names them (`${EDGE_MODEL_URL}` …) and is
 * written once, so a key or a port may change without touching a conversation.
 */
import type { SettingValues } from './settings.ts';

export interface ModelChoice {
  /** For people: which provider and model. */
  readonly description: string;
  /** For Hermes alone: EDGE_MODEL_PROVIDER, EDGE_MODEL_URL, EDGE_MODEL, EDGE_MODEL_KEY and the provider's own variable. */
  readonly hermesEnvironment: Readonly<Record<string, string>>;
}

/** Hermes' own names, addresses and listed models (hermes_cli/auth.py and models.py of 0.19.0). */
const providers = {
  openrouter: {
    hermes: 'openrouter',
    key: 'OPENROUTER_API_KEY',
    url: 'https://openrouter.ai/api/v1',
    model: 'z-ai/glm-5.2',
  },
  anthropic: {
    hermes: 'anthropic',
    key: 'ANTHROPIC_API_KEY',
    url: 'https://api.anthropic.com',
    model: 'claude-sonnet-5',
  },
  openai: { hermes: 'openai-api', key: 'OPENAI_API_KEY', url: 'https://api.openai.com/v1', model: 'gpt-5.4' },
  gemini: {
    hermes: 'gemini',
    key: 'GEMINI_API_KEY',
    url: 'https://generativelanguage.googleapis.com/v1beta',
    model: 'gemini-3.5-flash',
  },
} as const;
export type ProviderName = keyof typeof providers;
const providerNames = Object.keys(providers) as readonly ProviderName[];

/** What a local endpoint without a key is given: the OpenAI client needs some text. */
const noKey = 'no-key-required';

/** An OpenAI-compatible endpoint. */
export function customModel(url: string, model: string, key: string | null): ModelChoice {
  return {
    description: `${model} at ${new URL(url).host}`,
    hermesEnvironment: {
      EDGE_MODEL_PROVIDER: 'custom',
      EDGE_MODEL_URL: url,
      EDGE_MODEL: model,
      EDGE_MODEL_KEY: key ?? noKey,
    },
  };
}

/**
 * The model that the settings ask for; null when they ask for none. EDGE_MODEL_URL goes before any provider's key, and
 * among keys the first in the table above wins unless EDGE_MODEL_PROVIDER says otherwise. A string is what is wrong.
 */
export function chooseModel(values: SettingValues): ModelChoice | string | null {
  if (values.EDGE_MODEL_URL !== null) {
    if (values.EDGE_MODEL === null) return 'EDGE_MODEL_URL needs EDGE_MODEL: the name of the model there';
    return customModel(values.EDGE_MODEL_URL, values.EDGE_MODEL, values.EDGE_MODEL_KEY);
  }
  if (values.EDGE_MODEL_KEY !== null) return 'EDGE_MODEL_KEY needs EDGE_MODEL_URL: the provider that it is for';
  const asked = values.EDGE_MODEL_PROVIDER;
  if (asked !== null && values[providers[asked].key] === null) {
    return `EDGE_MODEL_PROVIDER=${asked} needs ${providers[asked].key}`;
  }
  const chosen = asked ?? providerNames.find((name) => values[providers[name].key] !== null);
  if (chosen === undefined) {
    if (values.EDGE_MODEL !== null) return `EDGE_MODEL needs EDGE_MODEL_URL or a key: ${keyNames()}`;
    return null;
  }
  const provider = providers[chosen];
  const key = values[provider.key] ?? '';
  const model = values.EDGE_MODEL ?? provider.model;
  return {
    description: `${model} at ${chosen}`,
    hermesEnvironment: {
      EDGE_MODEL_PROVIDER: provider.hermes,
      EDGE_MODEL_URL: provider.url,
      EDGE_MODEL: model,
      EDGE_MODEL_KEY: key,
      [provider.key]: key,
    },
  };
}

function keyNames(): string {
  return providerNames.map((name) => providers[name].key).join(', ');
}

/** What to do when no model is configured. */
export function modelMissing(): string {
  return `No model is configured. Set one of ${keyNames()}, or EDGE_MODEL_URL and EDGE_MODEL for any OpenAI-compatible endpoint`;
}
