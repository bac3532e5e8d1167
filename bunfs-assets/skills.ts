/**
 * The immutable base below the organization's files: each file that is deliberately exposed has its line here, and nothing
 * else of what is embedded can be seen through it (ADR-046 §5).
 */
import filesAndDeliverables from './skills/files-and-deliverables/SKILL.md' with { type: 'file' };
import tabularData from './skills/tabular-data/SKILL.md' with { type: 'file' };
import profileCsv from './skills/tabular-data/scripts/profile_csv.py' with { type: 'file' };

export interface ExposedFile {
  /** In the organization's tree. */
  readonly path: string;
  /** The embedded file's path, for `readAsset`. */
  readonly asset: string;
  /** Permissions; who may write is decided by the view. */
  readonly mode: number;
}

export const exposedFiles: readonly ExposedFile[] = [
  { path: '/skills/files-and-deliverables/SKILL.md', asset: filesAndDeliverables, mode: 0o644 },
  { path: '/skills/tabular-data/SKILL.md', asset: tabularData, mode: 0o644 },
  { path: '/skills/tabular-data/scripts/profile_csv.py', asset: profileCsv, mode: 0o755 },
];
