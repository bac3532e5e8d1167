/** The machine's end of a holder's descriptor 3. */
import type { FdSocketOptions, Socket, UnixSocketOptions } from 'bun';
import { SocketWriter } from '../../hermes-run/socket-writer.ts';

/** A two-way byte stream. Listeners are set once, before anything else happens. */
export interface SqlChannel {
  /** Resolves when the kernel has taken the bytes. At most one call at a time. Rejects when the other end is gone. */
  write(bytes: Uint8Array): Promise<void>;
  onData(listener: (bytes: Uint8Array) => void): void;
  onClose(listener: () => void): void;
  close(): void;
}

/** A child that takes no answer for so long is as good as gone. */
const stallMs = 60_000;

/** Takes over `fd`, the parent's end of a `'socket-fd'` in `Bun.spawn`'s `stdio`, and closes it in the end. */
export async function channelOf(fd: number): Promise<SqlChannel> {
  let data: (bytes: Uint8Array) => void = () => undefined;
  let close: () => void = () => undefined;
  let closed = false;
  const waiting: Uint8Array[] = [];
  let listening = false;
  const ended = () => {
    if (closed) return;
    closed = true;
    writer.gone('closed by the child');
    close();
  };
  const options: FdSocketOptions<undefined> = {
    fd,
    socket: {
      data: (_, bytes) => {
        if (listening) data(bytes);
        else waiting.push(bytes.slice());
      },
      drain: () => writer.drained(),
      end: ended,
      close: ended,
      error: ended,
    },
  };
  // bun-types has the options but no overload that takes them.
  const socket: Socket<undefined> = await Bun.connect(options as unknown as UnixSocketOptions<undefined>);
  const writer = new SocketWriter(socket, stallMs);
  return {
    write: (bytes) => writer.write(bytes),
    onData(listener) {
      data = listener;
      listening = true;
      for (const bytes of waiting.splice(0)) listener(bytes);
    },
    onClose(listener) {
      close = listener;
      if (closed) listener();
    },
    close: () => socket.terminate(),
  };
}
