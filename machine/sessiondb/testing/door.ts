/** A door before the test's authority: counts what passes, and holds, loses or cuts what it is told to. */
import { join } from 'node:path';
import type { AuthorityAddress } from '../../launch.ts';
import type { TestAuthority } from './authority.ts';

/** What happens to a request: it passes; it is lost on the way there; it is carried out and its answer is lost. */
export type Passage = 'pass' | 'lose-request' | 'lose-answer';

export class Door {
  readonly address: AuthorityAddress;
  /** The SQL of each request, oldest first. */
  readonly requests: string[][] = [];
  /** Decides before a request goes in; the next request does not wait for it. */
  before: (sql: readonly string[]) => Passage | Promise<Passage> = () => 'pass';
  readonly #server: Bun.Server<undefined>;

  constructor(authority: TestAuthority) {
    const socket = join(authority.directory, 'door');
    this.address = { ...authority.address, socket };
    this.#server = Bun.serve({
      unix: socket,
      fetch: async (request) => {
        const body = await request.text();
        const sql = [...body.matchAll(/"sql":("(?:[^"\\]|\\.)*")/g)].map(([, text]) => JSON.parse(text!) as string);
        this.requests.push(sql);
        const passage = await this.before(sql);
        if (passage === 'lose-request') return cut();
        const { pathname } = new URL(request.url);
        const { method, headers } = request;
        const answer = await fetch(`http://authority${pathname}`, {
          method,
          headers,
          body,
          unix: authority.address.socket!,
        });
        const bytes = await answer.arrayBuffer();
        return passage === 'lose-answer' ? cut() : new Response(bytes, answer);
      },
    });
  }

  /** How many requests with statements `act` makes. */
  async counting(act: () => Promise<unknown>): Promise<number> {
    const from = this.requests.length;
    await act();
    return this.requests.slice(from).filter((sql) => sql.length > 0).length;
  }

  stop(): Promise<void> {
    return this.#server.stop(true);
  }
}

const cut = (): Response => new Response(null, { status: 502 });
