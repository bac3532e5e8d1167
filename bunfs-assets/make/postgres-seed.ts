/** A data directory of the embedded Postgres, made once: a first start then unpacks it instead of running initdb. */
import { writeFileSync } from 'node:fs';
import { PGlite } from '@electric-sql/pglite';

async function makePostgresSeed(outFile: string): Promise<void> {
  const database = await PGlite.create('memory://');
  const dump = await database.dumpDataDir('gzip');
  writeFileSync(outFile, new Uint8Array(await dump.arrayBuffer()));
  await database.close();
}

const outFile = process.argv[2];
if (outFile === undefined) throw new Error('usage: postgres-seed.ts OUT_FILE');
await makePostgresSeed(outFile);
