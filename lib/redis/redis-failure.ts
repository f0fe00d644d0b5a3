import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookStoreError } from '../errors/webhook.error.js';

/** What an operator can do about an error reply of Redis. */
const REPLIES: readonly (readonly [RegExp, string])[] = [
  [/\bOOM\b/, 'its memory is full; raise maxmemory, or remove other keys'],
  [
    /\bNOREPLICAS\b/,
    'it has too few replicas to accept writes; check them, or lower min-replicas-to-write',
  ],
  [/^BUSY\b/, 'a script keeps it busy; wait for it, or stop it with SCRIPT KILL'],
  [/\bTRYAGAIN\b/, 'its cluster is moving keys to another node; try again in a moment'],
  [/\bREADONLY\b/, 'it is a read-only replica; connect to the primary'],
  // The reply to a blocked command when its server is demoted, at the start of a fail-over.
  [/\bUNBLOCKED\b/, 'it has become a replica; connect to the new primary'],
  [
    /\b(?:WRONGPASS|NOAUTH)\b|invalid password/,
    'it rejected the credentials; check user name and password',
  ],
  [/\bNOPERM\b/, 'the user lacks a permission; grant it the commands and keys it needs'],
  [/\bMISCONF\b/, 'it cannot write to its disk; free some space'],
  [/\bLOADING\b/, 'it is still loading its data; try again in a moment'],
  [
    /\b(?:MOVED|CROSSSLOT)\b|non local key/,
    'it is a cluster; pass a Cluster client, and put the prefix of the Queue in braces; with both, it is failing over',
  ],
  [/\b(?:CLUSTERDOWN|MASTERDOWN)\b/, 'its cluster is down; check the other nodes'],
  [
    /^no answer$|enableOfflineQueue|ClientOffline|client is offline|Connection is closed|Socket timeout|Command timed out|max retries per request/i,
    'it does not answer; check that it is running and reachable, and has loaded its data, and check the credentials',
  ],
  [
    /optional 'ioredis' package/,
    'BullMQ needs ioredis for connection options; run "npm install ioredis", or pass a client',
  ],
];

/** What a system error says about the way to the server. */
const SYSTEM_ERRORS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused; check that it is running and that the address is right',
  ENOTFOUND: 'the host name does not resolve; check it for a typing error',
  EAI_AGAIN: 'the host name does not resolve; check the DNS of this machine',
  ETIMEDOUT: 'the connection attempt timed out; check the address and the firewall',
  ECONNRESET: 'the connection was reset; check that it is running',
  EPIPE: 'the connection was reset; check that it is running',
};

/**
 * The error of a store or queue whose Redis failed, with what to do about it. The server's own message may quote a
 * command, and with it a payload, so it is only in `cause`.
 *
 * @param what - the subject of the sentence: 'The delivery queue'
 * @param client - connection options, or a client of ioredis or node-redis
 */
export function redisFailure(what: string, client: unknown, cause: unknown): WebhookStoreError {
  const address = redisAddress(client);
  const server = address === undefined ? 'Redis' : `Redis at ${address}`;
  const reason = reasonOf(cause) ?? 'see the cause of this error';
  return new WebhookStoreError('store_unavailable', `${what} cannot use ${server}: ${reason}`, {
    cause,
  });
}

/** Whether an error says that the server is away or cannot be used, rather than that one command failed. */
export function isRedisOutage(cause: unknown): boolean {
  return reasonOf(cause) !== undefined;
}

/** Whether the server has become a replica: it keeps its connections, which only new ones replace. */
export function isReadOnlyReplica(cause: unknown): boolean {
  return /^READONLY\b/.test(String((cause as { message?: unknown } | null)?.message));
}

/** Milliseconds between two reconnects from a replica: the address may go on leading to it. */
const RECONNECT_AFTER = 1_000;

/** Replaces the connection to a server that has become a replica: after a fail-over, a new one leads to the primary. */
export class ReplicaExit {
  private leftAt = -Infinity;

  constructor(
    private readonly clock: WebhookClock,
    private readonly reconnect: () => void,
  ) {}

  /** @param cause - the error of a command */
  after(cause: unknown): void {
    const now = this.clock.now();
    if (!isReadOnlyReplica(cause) || Math.abs(now - this.leftAt) < RECONNECT_AFTER) return;
    this.leftAt = now;
    this.reconnect();
  }
}

function reasonOf(cause: unknown): string | undefined {
  const { code, message, previousErrors } = (cause ?? {}) as {
    code?: unknown;
    message?: unknown;
    /** Of ioredis: why commands of a MULTI were refused. */
    previousErrors?: readonly unknown[];
  };
  if (typeof code === 'string' && SYSTEM_ERRORS[code] !== undefined) return SYSTEM_ERRORS[code];
  const known = REPLIES.find(([pattern]) => pattern.test(String(message)))?.[1];
  return known ?? (previousErrors && reasonOf(previousErrors[0]));
}

/** The members that name a server, of options and of the `options` of a client. */
interface AddressedOptions {
  readonly url?: unknown;
  readonly host?: unknown;
  readonly port?: unknown;
  readonly path?: unknown;
  readonly sentinels?: unknown;
  readonly socket?: AddressedOptions;
}

/** Host and port without credentials; `undefined` if they are unknown, as for some clusters. */
function redisAddress(client: unknown): string | undefined {
  const { isCluster, startupNodes, options } = (client ?? {}) as {
    isCluster?: boolean;
    startupNodes?: unknown;
    options?: AddressedOptions;
  };
  if (isCluster === true) return listOf(startupNodes);
  const given: AddressedOptions = options ?? client ?? {};
  if (Array.isArray(given.sentinels)) return listOf(given.sentinels);
  // Node-redis keeps host and port in `socket`.
  const { url, host = '127.0.0.1', port = 6379, path } = { ...given, ...given.socket };
  if (typeof url === 'string' && URL.canParse(url)) return new URL(url).host;
  return typeof path === 'string' ? path : `${String(host)}:${String(port)}`;
}

function listOf(nodes: unknown): string | undefined {
  if (!Array.isArray(nodes) || nodes.length === 0) return undefined;
  const addresses = nodes.flatMap((node: unknown) => redisAddress(node) ?? []);
  return addresses.join(', ');
}
