/** Which parts of a holder's view the shell's engine has: what its tools may work in, and nothing of Hermes' own. */
import { rootNode, type ViewNode, type Zone, zoneRules } from '../../agentfs/views.ts';

const zones: ReadonlySet<Zone> = new Set<Zone>(['root', 'workspace', 'artifacts', 'inbound']);

/** Names of the view's root that lead to these parts. */
export const reachable: readonly string[] = ['workspace', 'artifacts'];

export function isReachable(zone: Zone): boolean {
  return zones.has(zone);
}

export function isReadOnly(node: ViewNode): boolean {
  return node.ino === rootNode.ino || zoneRules[node.zone].readOnly;
}
