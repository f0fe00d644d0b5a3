import type { IncomingMessage, ServerResponse } from 'node:http';
import { type BeforeApplicationShutdown, Injectable } from '@nestjs/common';
import { type CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import { ConsoleActivity } from './console-activity.js';
import { ConsoleError } from './console-problem.js';
import type { ConsoleAccess } from './console-session.js';

/** Open streams of all users; beyond that, pages poll. */
const MAX_STREAMS = 100;
/** Milliseconds between two pings, below the idle timeout of common proxies. */
const PING = 25_000;
/** Bytes that are buffered for a slow reader. Its stream is then closed; the page connects again and reloads its lists. */
const MAX_UNREAD = 262_144;

/** Streams of changes, as server-sent events. */
@Injectable()
export class ConsoleStreams implements BeforeApplicationShutdown {
  private readonly open = new Set<() => void>();

  constructor(
    private readonly activity: ConsoleActivity,
    private readonly clock: WebhookClock,
  ) {}

  /** Ends open streams, which would hold up the server's shutdown. */
  beforeApplicationShutdown(): void {
    for (const end of this.open) end();
  }

  /** @throws {@link ConsoleError} `too_many_streams` */
  requireFree(): void {
    if (this.open.size < MAX_STREAMS) return;
    throw new ConsoleError('too_many_streams', 'Too many streams are open; poll instead.');
  }

  /**
   * Sends the changes that a session may see, until the reader leaves, the session expires or the application ends.
   *
   * @param headers - of the answer, beside those of the stream
   */
  start(
    { tenant, expiresAt }: ConsoleAccess,
    request: IncomingMessage,
    response: ServerResponse,
    headers: Readonly<Record<string, string>>,
  ): void {
    this.activity.observe();
    response.writeHead(200, {
      ...headers,
      'Content-Type': 'text/event-stream',
      // Proxies such as nginx would collect events.
      'X-Accel-Buffering': 'no',
    });
    const write = (text: string): void => {
      if (response.writableLength > MAX_UNREAD) response.destroy();
      else if (!response.writableEnded) response.write(text);
    };
    write('retry: 5000\n\n');
    const unsubscribe = this.activity.subscribe(tenant, (change) => {
      write(`id: ${change.sequence}\nevent: change\ndata: ${JSON.stringify(change)}\n\n`);
    });
    let cancelPing: CancelWake;
    const pingLater = (): void => {
      cancelPing = this.clock.wakeAt(this.clock.now() + PING, () => {
        write('event: ping\ndata: {}\n\n');
        pingLater();
      });
    };
    pingLater();
    // A session that has expired must not go on listening.
    const cancelExpiry =
      expiresAt && this.clock.wakeAt(expiresAt.getTime(), () => void response.end());
    const end = (): void => {
      cancelPing();
      cancelExpiry?.();
      unsubscribe();
      this.open.delete(end);
      response.end();
    };
    this.open.add(end);
    request.once('close', end);
    response.once('close', end);
    // The reader has left while a guard ran, and nothing is emitted any more.
    if (response.destroyed) end();
  }
}
