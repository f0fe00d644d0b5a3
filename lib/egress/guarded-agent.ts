import dns from 'node:dns';
import http from 'node:http';
import https from 'node:https';
import { isIP, type LookupFunction, Socket, type TcpNetConnectOpts } from 'node:net';
import type { Duplex } from 'node:stream';
import { WebhookDestinationBlockedError } from '../errors/webhook.error.js';
import { unprinted } from '../options/unprinted.js';
import type { EgressPolicy } from './egress-policy.js';

/** Where a connection is about to go, as HTTP clients say it. */
interface ConnectionTarget {
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

/**
 * A lookup whose answers are allowed ones. The connection is made to the very answer that was checked,
 * so a name that changes its address between two questions (DNS rebinding) gains nothing.
 */
export function guardedLookup(policy: EgressPolicy, lookup: typeof dns.lookup): LookupFunction {
  return (hostname, options, callback) => {
    // All of them, also when one is asked for: a name with one bad address is refused, not tried by luck.
    lookup(hostname, { ...options, all: true }, (error, addresses) => {
      if (error) return callback(error, '');
      const [first] = addresses;
      if (first === undefined) return callback(notFound(hostname), '');
      try {
        policy.checkResolved(hostname, addresses);
      } catch (blocked) {
        return callback(blocked as Error, '');
      }
      return options.all ? callback(null, addresses) : callback(null, first.address, first.family);
    });
  };
}

/** Some resolvers answer nothing without calling it an error, and a socket would then wait for ever. */
function notFound(hostname: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`getaddrinfo ENOTFOUND ${hostname}`), {
    code: 'ENOTFOUND',
    syscall: 'getaddrinfo',
  });
}

/** Certificates for destinations that need their own; a certificate is always verified. */
export type EgressTlsOptions = Pick<
  https.AgentOptions,
  'ca' | 'cert' | 'key' | 'pfx' | 'passphrase'
>;

export interface GuardedAgentsOptions {
  /** Resolves names. Default: `dns.lookup`. */
  readonly lookup?: typeof dns.lookup | undefined;
  readonly tls?: EgressTlsOptions | undefined;
  /** Connections to one origin at a time. Default: no limit. */
  readonly maxSockets?: number | undefined;
}

/** The agents every delivery goes through. */
export interface GuardedAgents {
  readonly httpAgent: http.Agent;
  readonly httpsAgent: https.Agent;
  /** Closes all connections, the idle ones kept for reuse included. */
  destroy(): void;
}

/**
 * Creates agents that connect only where the policy allows.
 *
 * A refused request fails with a {@link WebhookDestinationBlockedError}; clients that wrap errors keep it
 * as the cause, see {@link blockedDestination}. Redirects and proxies are the caller's to switch off: an
 * agent sees the connection it is asked for, not the one a proxy then makes.
 */
export function createGuardedAgents(
  policy: EgressPolicy,
  options: GuardedAgentsOptions = {},
): GuardedAgents {
  const lookup = options.lookup ?? dns.lookup;
  const pool = { keepAlive: true, maxSockets: options.maxSockets ?? Infinity };
  const httpAgent = guard(new http.Agent(pool), policy, lookup);
  const httpsAgent = guard(
    // Both said outright: the environment (NODE_TLS_REJECT_UNAUTHORIZED, NODE_OPTIONS) can weaken defaults.
    new https.Agent({ ...options.tls, ...pool, minVersion: 'TLSv1.2', rejectUnauthorized: true }),
    policy,
    lookup,
  );
  return {
    httpAgent,
    httpsAgent,
    destroy() {
      httpAgent.destroy();
      httpsAgent.destroy();
    },
  };
}

function guard<Agent extends http.Agent>(
  agent: Agent,
  policy: EgressPolicy,
  lookup: typeof dns.lookup,
): Agent {
  const connect = agent.createConnection.bind(agent);
  const checkedLookup = guardedLookup(policy, lookup);
  agent.createConnection = (options, callback) => {
    const { host } = options as Partial<TcpNetConnectOpts>;
    const { socketPath, path } = options;
    // Agents get the path of a Unix socket here and not that of the request.
    const blocked = blockedBy(() => checkTarget(policy, { host, socketPath, path }));
    if (blocked !== undefined) return refusedSocket(blocked);
    const socket = connect({ ...options, lookup: checkedLookup }, callback);
    // The last word has the address the socket got, however it came by it.
    if (socket instanceof Socket) watchPeer(policy, socket);
    return socket;
  };
  watchIdleSockets(agent);
  // Its sockets hold the requests, and so the tokens, that they carry.
  return unprinted(agent, `[guarded ${agent.constructor.name}]`);
}

/**
 * What a server says before it was asked would be taken for the answer to the next request on the connection: an
 * idle one that says anything is closed.
 */
function watchIdleSockets(agent: http.Agent): void {
  const keep = agent.keepSocketAlive.bind(agent);
  const reuse = agent.reuseSocket.bind(agent);
  const close = function (this: Duplex): void {
    this.destroy();
  };
  agent.keepSocketAlive = (socket) => {
    socket.on('data', close);
    return keep(socket);
  };
  agent.reuseSocket = (socket, request) => {
    socket.off('data', close);
    reuse(socket, request);
  };
}

/**
 * A socket that fails before it connects. Unlike an error thrown or called back, it leaves the agent's
 * queue like any lost connection, so that requests waiting for a free socket are not left hanging.
 */
function refusedSocket(error: Error): Socket {
  const socket = new Socket();
  socket.on('error', () => undefined); // the request may be gone before it listens
  // Not at once, for nobody would hear of it; not later, for a write would fail first, with another error.
  process.nextTick(() => socket.destroy(error));
  return socket;
}
