import { isIP, type Socket } from 'node:net';
import { WebhookDestinationBlockedError } from '../errors/webhook-destination-blocked.error.js';
import type { EgressPolicy } from './egress-policy.js';

/** Where a connection is about to go, as HTTP clients say it. */
export interface ConnectionTarget {
  readonly host?: string | null | undefined;
  /** Of a Unix socket. */
  readonly socketPath?: string | null | undefined;
  /** The same, as Node's agents say it here. */
  readonly path?: string | null | undefined;
}

/**
 * Checks what is known before the connection: a literal address is never looked up.
 *
 * @throws {@link WebhookDestinationBlockedError}
 */
export function checkTarget(
  policy: EgressPolicy,
  { host, socketPath, path }: ConnectionTarget,
): void {
  if (socketPath || path) {
    throw new WebhookDestinationBlockedError(
      'The destination was refused: it is a Unix socket; deliveries go to hosts only.',
    );
  }
  if (host && isIP(host) !== 0) policy.checkAddress(host);
}

/** Ends a connection to an address that is not allowed, however the socket came by it. */
export function watchPeer(policy: EgressPolicy, socket: Socket): void {
  socket.prependOnceListener('connect', () => {
    const peer = socket.remoteAddress;
    // A connection that was reset at once has no peer any more; that is a failure, not a refusal.
    if (peer === undefined) return void socket.destroy(resetAtOnce());
    const blocked = blockedBy(() => policy.checkAddress(peer));
    if (blocked !== undefined) socket.destroy(blocked);
  });
}

/** Said outright: a connection destroyed without an error before TLS is up keeps undici waiting for ever. */
function resetAtOnce(): NodeJS.ErrnoException {
  return Object.assign(new Error('The connection was reset.'), { code: 'ECONNRESET' });
}

/** What a check throws. */
export function blockedBy(check: () => void): Error | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    return error as Error;
  }
}
