/**
 * A holder's messages where this process has the holder's FUSE device: requests are read from it and answered to it, as long
 * as one comes after the other; in between the holder's relay watches the device. Through the relay's stream goes only what
 * may wait in the kernel, and word of who watches.
 */
import type { HolderStream } from '../holders/holder-socket.ts';
import { DeviceError, FuseDevice } from './device.ts';
import { type Followed, type Following, following } from './following.ts';
import { FrameDecoder } from './frames.ts';
import type { FuseStream } from './session.ts';
import { lengthOf, mayWait, notification, notifyCodes, opcodeOf, opcodes } from './wire.ts';

export interface DirectStreamOptions {
  /** The holder's `F` stream. */
  readonly relay: HolderStream;
  /** Gives the descriptor of the device, which came with the holder, once; null when there is none. */
  takeDevice(): number | null;
  /** Replaced in tests alone. */
  readonly following?: Following;
  log(text: string): void;
}

export class DirectStream implements FuseStream, Followed {
  readonly isDirect = true;
  readonly #relay: HolderStream;
  readonly #takeDevice: () => number | null;
  readonly #following: Following;
  readonly #log: (text: string) => void;
  readonly #decoder = new FrameDecoder();
  #device: FuseDevice | null = null;
  #relayWatches = true;
  #isPaused = false;
  #answered = false;
  #data: (message: Uint8Array) => void = () => undefined;

  constructor(options: DirectStreamOptions) {
    this.#relay = options.relay;
    this.#takeDevice = () => options.takeDevice();
    this.#following = options.following ?? following;
    this.#log = (text) => options.log(text);
    this.#relay.onData((bytes) => this.#hear(bytes));
  }

  get fd(): number {
    return this.#device?.fd ?? -1;
  }

  step(): boolean {
    if (this.#isPaused || !this.#device) return false;
    const message = this.#unlessBroken(this.#device, (device) => device.read());
    if (typeof message !== 'object' || message === null) return false;
    this.#data(message);
    return true;
  }

  hasAnswered(): boolean {
    const answered = this.#answered && !this.#isPaused;
    this.#answered = false;
    return answered;
  }

  /** Not while nothing is to be read: the relay would only say at once that there is something. */
  rest(): void {
    if (this.#relayWatches || this.#isPaused || this.fd < 0) return;
    this.#relayWatches = true;
    // A relay that is gone ends the stream by its own close.
    this.#relay.write(notification(notifyCodes.watch, 0).bytes)?.catch(() => undefined);
  }

  write(bytes: Uint8Array): Promise<void> | null {
    // Of several that wait, the last: the stream keeps their order.
    let waiting: Promise<void> | null = null;
    for (let at = 0; at < bytes.length; ) {
      const end = at + lengthOf(bytes, at);
      const message = at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end);
      at = end;
      if (mayWait(message)) waiting = this.#relay.write(message);
      else this.#answer(message);
    }
    return waiting;
  }

  onData(listener: (message: Uint8Array) => void): void {
    this.#data = listener;
  }

  onClose(listener: () => void): void {
    this.#relay.onClose(() => {
      this.#letGo();
      listener();
    });
  }

  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    if (this.#device && !this.#relayWatches) this.#following.beginSoon(this);
  }

  close(): void {
    this.#letGo();
    this.#relay.close();
  }

  #hear(bytes: Uint8Array): void {
    try {
      this.#decoder.feed(bytes, (message) => {
        if (opcodeOf(message) === opcodes.readable) this.#readable();
        else this.#data(message);
      });
    } catch (error) {
      // What follows a bad length cannot be understood: the holder goes with its mount.
      this.#log(`fuse: ${error}`);
      this.close();
    }
  }

  #readable(): void {
    this.#relayWatches = false;
    if (!this.#device) {
      const fd = this.#takeDevice();
      if (fd === null) throw new Error('no device came');
      this.#device = new FuseDevice(fd);
    }
    if (!this.#isPaused) this.#following.begin(this);
  }

  #answer(message: Uint8Array): void {
    if (!this.#device) return;
    this.#unlessBroken(this.#device, (device) => device.write(message));
    this.#answered = true;
  }

  /** A device that fails is the end of the mount. */
  #unlessBroken<Result>(device: FuseDevice, use: (device: FuseDevice) => Result): Result | null {
    try {
      return use(device);
    } catch (error) {
      if (!(error instanceof DeviceError)) throw error;
      this.#log(`fuse: ${error.message}`);
      this.close();
      return null;
    }
  }

  #letGo(): void {
    this.#following.leave(this);
    this.#device?.close();
  }
}
