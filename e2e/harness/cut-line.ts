/**
 * A line of TCP before a server, which cuts a connection when the answer to a certain request begins to come: the request was
 * carried out, and whoever sent it is not told.
 */
import { connect, createServer, type Server, type Socket } from 'node:net';

/** What is kept of a request to look at. */
const keptBytes = 1024 * 1024;

export class CutLine {
  /** Of a request, as it goes over the line: whether its answer is to be lost. */
  cuts: (request: string) => boolean = () => false;
  /** How many answers were lost. */
  count = 0;
  /** Requests that `cuts` said yes to, whether or not they were the last ones of their kind. */
  readonly met: string[] = [];
  readonly #server: Server;
  readonly #open = new Set<Socket>();

  private constructor(port: number) {
    this.#server = createServer((client) => this.#join(client, connect(port, '127.0.0.1')));
  }

  static async before(port: number): Promise<CutLine> {
    const line = new CutLine(port);
    await new Promise<void>((resolve) => line.#server.listen(0, '127.0.0.1', resolve));
    return line;
  }

  get port(): number {
    const address = this.#server.address();
    if (address === null || typeof address === 'string') throw new Error('it does not listen');
    return address.port;
  }

  async stop(): Promise<void> {
    for (const socket of this.#open) socket.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #join(client: Socket, server: Socket): void {
    let request = '';
    let isDoomed = false;
    client.on('data', (bytes) => {
      request = (request + bytes.toString('latin1')).slice(-keptBytes);
      if (!isDoomed && this.cuts(request)) {
        isDoomed = true;
        this.met.push(request);
      }
      server.write(bytes);
    });
    server.on('data', (bytes) => {
      if (!isDoomed) {
        request = '';
        client.write(bytes);
        return;
      }
      this.count += 1;
      client.destroy();
      server.destroy();
    });
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#open.add(one);
      one.on('error', () => other.destroy());
      one.on('close', () => {
        this.#open.delete(one);
        other.destroy();
      });
    }
  }
}
