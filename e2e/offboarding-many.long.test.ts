import { test } from 'bun:test';
import { installedPostgres } from '../gateway/governance/databases.fixture.ts';
import { Organization } from './harness/organization.ts';
import { offboard } from './offboarding/scenario.ts';

const bin = installedPostgres();

test.skipIf(bin === null)(
  'a Specialist with 20 warm holders leaves: none is evicted',
  async () => {
    await using organization = await Organization.start(bin!);
    await organization.serve('data', { EDGE_MAX_HOLDERS: '24' });
    await offboard(organization, 20);
  },
  600_000,
);
