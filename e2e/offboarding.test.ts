import { test } from 'bun:test';
import { installedPostgres } from '../gateway/governance/databases.fixture.ts';
import { Organization } from './harness/organization.ts';
import { offboard } from './offboarding/scenario.ts';

const bin = installedPostgres();

test.skipIf(bin === null)(
  'a Specialist leaves during a turn: routing changes, and nothing else',
  async () => {
    await using organization = await Organization.start(bin!);
    await organization.serve();
    await offboard(organization, 4);
  },
  240_000,
);
