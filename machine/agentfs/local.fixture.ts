/** For tests: an organization's files in a database of this process, without any cloud. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from '@tursodatabase/sync';
import { type BaseTree, emptyBase } from './base.ts';
import { SqlDriver } from './driver.ts';
import { OrganizationFiles } from './files.ts';
import { defaultLimits, type StoreLimits } from './limits.ts';
import { schemaStatements } from './schema.ts';
import { directStatements } from './statements.ts';

export interface LocalFiles {
  readonly path: string;
  readonly driver: SqlDriver;
  readonly files: OrganizationFiles;
  close(): Promise<void>;
}

/** The files in a directory that stays; an empty file system is made where there is none. */
export async function openFilesIn(
  directory: string,
  limits: Partial<StoreLimits> = {},
  base: BaseTree = emptyBase,
): Promise<LocalFiles> {
  const path = join(directory, 'organization.db');
  const database = await connect({ path });
  const driver = new SqlDriver(directStatements(database), path);
  for (const { sql, args } of schemaStatements(1)) await driver.run(sql, ...args);
  const files = await OrganizationFiles.open(driver, { ...defaultLimits, ...limits }, base);
  return {
    path,
    driver,
    files,
    close: async () => {
      await files.flush();
      await files.close();
      await driver.forget();
      await database.close();
    },
  };
}

export async function openLocalFiles(
  limits: Partial<StoreLimits> = {},
  base: BaseTree = emptyBase,
): Promise<LocalFiles> {
  const directory = mkdtempSync(join(tmpdir(), 'agentfs-local-'));
  const local = await openFilesIn(directory, limits, base);
  return {
    ...local,
    close: async () => {
      await local.close();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}
