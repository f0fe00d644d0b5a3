import type { IncomingMessage, ServerResponse } from 'node:http';
import { type BeforeApplicationShutdown, Injectable } from '@nestjs/common';
import { MINUTE } from '../clock/duration.js';
import { repeat, WebhookClock } from '../clock/webhook-clock.js';
import { ConsoleActivity } from './console-activity.js';
import { ConsoleError } from './console-problem.js';
import type { ConsoleAccess } from './console-session.js';

/** Open streams of the console, and as many of the portal; beyond that, pages only reload every 30 seconds. */
const MAX_STREAMS = 100;
/** Open streams of one tenant in the portal. */
const MAX_OF_TENANT = 10;
/** Milliseconds between two pings, below the idle timeout of common proxies. */
const PING = 25_000;
/** The page connects again after this time, and the guards of the console see whether its session still holds. */
const LIFETIME = 5 * MINUTE;
/** Bytes that are buffered for a slow reader. Its stream is then closed; the page connects again and reloads its lists. */
const MAX_UNREAD = 262_144;

/** Streams of changes, as server-sent events. */
@Injectable()
export class ConsoleStreams implements BeforeApplicationShutdown {
  /** What ends a stream, and whose it is. */
  private readonly open = new Map<() => void, ConsoleAccess>();
  private isShuttingDown = false;

  constructor(
    private readonly activity: ConsoleActivity,
    private readonly clock: WebhookClock,
  ) {}

  /** Ends open streams, and later ones as soon as they start: they would hold up the server's shutdown. */
  beforeApplicationShutdown(): void {
    this.isShuttingDown = true;
    for (const end of this.open.keys()) end();
  }

  endSession(sessionId: string): void {
    for (const [end, access] of this.open) if (access.grant?.id === sessionId) end();
  }

  /** @throws {@link ConsoleError} `too_many_streams` */
  requireFree({ kind, tenant }: ConsoleAccess): void {
    const ofKind = [...this.open.values()].filter((access) => access.kind === kind);
    const own = ofKind.filter((access) => access.tenant === tenant);
    const limit = kind === 'portal' ? MAX_OF_TENANT : MAX_STREAMS;
    if (ofKind.length < MAX_STREAMS && own.length < limit) return;
    throw new ConsoleError(
      'too_many_streams',
      'Too many streams are open; reload every 30 seconds instead.',
    );
  }

  /**
   * Sends the changes that a session may see, until the reader leaves, the session expires, the application ends or the stream is
   * five minutes old.
   *
   * @param headers - of the answer, beside those of the stream
   */
  start(
    access: ConsoleAccess,
    request: IncomingMessage,
    response: ServerResponse,
    headers: Readonly<Record<string, string>>,
  ): void {
    const { tenant, expiresAt } = access;
    response.writeHead(200, {
      ...headers,
      'Content-Type': 'text/event-stream',
      // Middleware that compresses answers, and proxies such as nginx, would collect events.
      'Cache-Control': 'no-store, no-transform',
      'X-Accel-Buffering': 'no',
    });
    const write = (text: string): void => {
      if (response.writableLength > MAX_UNREAD) response.destroy();
      else if (!response.writableEnded) response.write(text);
    };
    write('retry: 5000\n\n');
    const unsubscribe = this.activity.subscribe(tenant, (change) => {
      write(`event: change\ndata: ${JSON.stringify(change)}\n\n`);
    });
    const cancelPing = repeat(this.clock, PING, async () => write('event: ping\ndata: {}\n\n'));
    // A session that has expired must not go on listening.
    const endsAt = Math.min(this.clock.now() + LIFETIME, expiresAt?.getTime() ?? Infinity);
    const cancelExpiry = this.clock.wakeAt(endsAt, () => void response.end());
    const end = (): void => {
      cancelPing();
      cancelExpiry();
      unsubscribe();
      this.open.delete(end);
      response.end();
    };
    this.open.set(end, access);
    request.once('close', end);
    response.once('close', end);
    // A page connects again after its stream has ended, and not after it was refused.
    // Nothing is emitted any more if the reader has left while a guard ran.
    if (this.isShuttingDown || response.destroyed) end();
  }
}
