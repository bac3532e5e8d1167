/** A child of a relay, with frames made here in place of Python. */
import type { AuthorityAddress } from '../../launch.ts';
import type { SqlChannel } from '../channel.ts';
import type { FrameAnswer } from '../frames.ts';
import { type RelayOptions, SessionRelay } from '../relay.ts';

/** One child: frames go in, answers come out. */
export class TestChild implements SqlChannel {
  readonly relay: SessionRelay;
  readonly ended: ReturnType<SessionRelay['serve']>;
  readonly written: Buffer[] = [];
  cut = false;
  readonly #answers = new Map<number, (answer: FrameAnswer) => void>();
  #receive: (bytes: Uint8Array) => void = () => undefined;
  #close: () => void = () => undefined;
  #last = 0;

  constructor(address: AuthorityAddress, options: Partial<RelayOptions> = {}) {
    this.relay = new SessionRelay(address, options);
    this.ended = this.relay.serve(this);
  }

  async write(bytes: Uint8Array): Promise<void> {
    const frame = Buffer.from(bytes);
    this.written.push(frame);
    this.#answers.get(frame.readUInt32BE(4))?.(JSON.parse(frame.subarray(8).toString()));
  }
  onData(listener: (bytes: Uint8Array) => void): void {
    this.#receive = listener;
  }
  onClose(listener: () => void): void {
    this.#close = listener;
  }
  close(): void {
    this.cut = true;
  }

  send(body: object, id = 0): void {
    const bytes = Buffer.from(JSON.stringify(body));
    const frame = Buffer.alloc(8 + bytes.length);
    frame.writeUInt32BE(bytes.length + 4, 0);
    frame.writeUInt32BE(id, 4);
    bytes.copy(frame, 8);
    this.#receive(frame);
  }
  raw(bytes: Uint8Array): void {
    this.#receive(bytes);
  }
  ask(body: object): Promise<FrameAnswer> {
    const id = ++this.#last;
    return new Promise((resolve) => {
      this.#answers.set(id, resolve);
      this.send(body, id);
    });
  }
  run(c: number, ...q: [string, unknown[]?][]): Promise<FrameAnswer> {
    return this.ask({ c, q });
  }
  end() {
    this.#close();
    return this.ended;
  }
}
