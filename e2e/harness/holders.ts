/** The processes of holders below a gateway. */
import { descendants, type ProcessInfo } from './processes.ts';

/** The Hermes processes themselves: Python with the start script. */
export function hermesProcesses(gatewayPid: number): ProcessInfo[] {
  return descendants(gatewayPid).filter(
    ({ argv }) => argv[0] === '/opt/hermes/bin/python' && argv.includes('/opt/edge/start.py'),
  );
}
