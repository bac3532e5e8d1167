/** The two ways in which a reader is connected: the WebSocket, and Server-Sent Events. */
import * as v from 'valibot';
import { EventClient, type Frame, frameSchema } from '../harness/events.ts';
import { linesOf } from '../harness/lines.ts';
import type { Connect } from './reader.ts';

/** A gateway that dies while it is asked says nothing; one that starts answers late. */
const openMs = 20_000;

export function overWebSocket(url: string, token: string): Connect {
  return async (conversation, after, onFrame) => {
    const socket = await EventClient.open(url, token);
    socket.onFrame(onFrame);
    socket.send({ type: 'subscribe', conversation, after });
    return { closed: socket.closed, close: () => void socket.close() };
  };
}

export function overEventStream(url: string, token: string): Connect {
  return async (conversation, after, onFrame) => {
    const abort = new AbortController();
    const late = setTimeout(() => abort.abort(), openMs);
    const response = await fetch(`${url}/v1/conversations/${conversation}/events?after=0`, {
      headers: { authorization: `Bearer ${token}`, 'last-event-id': String(after) },
      signal: abort.signal,
    }).finally(() => clearTimeout(late));
    if (!response.ok || response.body === null) throw new Error(`no event stream: HTTP ${response.status}`);
    return { closed: read(response.body, onFrame), close: () => abort.abort() };
  };
}

async function read(body: ReadableStream<Uint8Array>, onFrame: (frame: Frame) => void): Promise<void> {
  for await (const line of linesOf(body)) {
    if (line.startsWith('data: ')) onFrame(v.parse(frameSchema, JSON.parse(line.slice('data: '.length))));
  }
}
