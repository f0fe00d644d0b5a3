import { X509Certificate } from 'node:crypto';
import type { LookupAddress } from 'node:dns';
import { setMaxListeners } from 'node:events';
import * as http from 'node:http';
import * as https from 'node:https';
import { isIP, type LookupFunction, Socket, type TcpNetConnectOpts } from 'node:net';
import type { Duplex } from 'node:stream';
import { createSecureContext, type SecureContext } from 'node:tls';
import { callbackify } from 'node:util';
import { WebhookDestinationBlockedError } from '../errors/webhook.error.js';
import { rule } from '../options/rules.js';
import { unprinted } from '../options/unprinted.js';
import type { EgressProxy } from './egress-proxy.js';
import type { EgressPolicy } from './egress-policy.js';
import { type HostLookup, lookupHost } from './host-lookup.js';

/** Certificates for endpoints that need their own. Server certificates are always verified. */
export type EgressTlsOptions = Pick<
  https.AgentOptions,
  'ca' | 'cert' | 'key' | 'pfx' | 'passphrase'
>;

/** Authorities. */
export const CERTIFICATES = rule<EgressTlsOptions['ca']>(
  areCertificates,
  'cannot be read: pass certificates as PEM',
);

/** Whether Node reads each of them. It ignores others, such as a path or DER, and then trusts none. */
export function areCertificates(given: unknown): boolean {
  try {
    return ([given].flat() as string[]).every((one) => {
      const { raw } = new X509Certificate(one);
      return !raw.equals(Buffer.from(one));
    });
  } catch {
    return false;
  }
}

export interface GuardedAgentsOptions {
  /** Resolves names. Default: {@link lookupHost}. */
  readonly lookup?: HostLookup | undefined;
  readonly tls?: EgressTlsOptions | undefined;
  /** Opens every connection, to an address that was checked here. */
  readonly proxy?: EgressProxy | undefined;
  /** Whether connections are kept for further requests. Default: `true`. */
  readonly keepAlive?: boolean | undefined;
  /** Connections to one origin at a time. Default: no limit. */
  readonly maxSockets?: number | undefined;
}

/** Headers of one connection (RFC 9110, section 7.6.1), and headers that Node sets. */
export const CONNECTION_HEADERS: ReadonlySet<string> = new Set([
  'connection',
  'content-length',
  'expect',
  'host',
  'keep-alive',
  'proxy-connection',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
]);

/** Milliseconds after which an unused connection is closed. */
const IDLE_TIMEOUT = 60_000;

/** The agents that every delivery is sent with. */
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
 * as the cause. The caller must disable redirects, and proxies other than {@link GuardedAgentsOptions.proxy}: an agent sees
 * its own connection, not the one that a proxy makes.
 */
export function createGuardedAgents(
  policy: EgressPolicy,
  options: GuardedAgentsOptions = {},
): GuardedAgents {
  const lookup = options.lookup ?? lookupHost;
  const pool = {
    keepAlive: options.keepAlive ?? true,
    maxSockets: options.maxSockets ?? Infinity,
    // Closes idle connections only: no request listens for it. Without it, Node ignores the Keep-Alive header of a server too.
    timeout: IDLE_TIMEOUT,
  };
  const closing = new AbortController();
  setMaxListeners(0, closing.signal);
  const route = { policy, lookup, proxy: options.proxy, signal: closing.signal };
  const httpAgent = guard(new http.Agent(pool), route);
  // Explicit, because the environment (NODE_TLS_REJECT_UNAUTHORIZED, NODE_OPTIONS) can weaken the defaults.
  const tls = { ...options.tls, minVersion: 'TLSv1.2', rejectUnauthorized: true } as const;
  const httpsAgent = guard(withOneContext(new https.Agent({ ...tls, ...pool }), tls), route);
  return {
    httpAgent,
    httpsAgent,
    destroy() {
      closing.abort();
      httpAgent.destroy();
      httpsAgent.destroy();
    },
  };
}

/** Decrypts a key once instead of for each connection: deriving it from its passphrase blocks the process. */
function withOneContext(agent: https.Agent, tls: EgressTlsOptions): https.Agent {
  if (tls.passphrase === undefined) return agent;
  const connect = agent.createConnection.bind(agent);
  let secureContext: SecureContext | undefined;
  agent.createConnection = (options, callback) => {
    secureContext ??= createSecureContext(tls);
    return connect(Object.assign({ secureContext }, options), callback);
  };
  return agent;
}

interface Route {
  readonly policy: EgressPolicy;
  readonly lookup: HostLookup;
  readonly proxy: EgressProxy | undefined;
  /** Ends tunnels that are being opened. */
  readonly signal: AbortSignal;
}

function guard<Agent extends http.Agent>(agent: Agent, route: Route): Agent {
  const { policy, proxy } = route;
  const connect = agent.createConnection.bind(agent);
  agent.createConnection = (options, callback) => {
    const blocked = blockedBy(() => checkPeerOptions(policy, options));
    if (blocked !== undefined) return refusedSocket(blocked);
    if (proxy !== undefined) {
      // TLS is between this process and the endpoint; the proxy sees neither token nor payload.
      const secured = (tunnel: Duplex): Duplex =>
        agent instanceof https.Agent
          ? connect({ ...options, socket: tunnel } as http.ClientRequestArgs)!
          : tunnel;
      const open = async (): Promise<Duplex> => {
        const socket = secured(await openTunnel(options, proxy, route));
        ignoreLateErrors(socket);
        return socket;
      };
      callbackify(open)(callback!);
      return undefined;
    }
    let socket: Duplex | null | undefined;
    const lookup = guardedLookup(route, () => socket?.destroyed !== true);
    socket = connect({ ...options, lookup }, callback);
    ignoreLateErrors(socket);
    socket?.once('error', ({ code }: NodeJS.ErrnoException) => {
      if (code === 'EMFILE' || code === 'ENFILE') closeIdleSockets(agent);
    });
    // Checks the address that the socket really connected to.
    if (socket instanceof Socket) watchPeer(policy, socket);
    return socket;
  };
  watchIdleSockets(agent);
  // Its sockets hold the requests, and so the tokens, that they carry.
  return unprinted(agent, `[guarded ${agent.constructor.name}]`);
}

/**
 * A request whose answer has ended no longer listens to its socket, although a late write of its body may fail: without a listener, that
 * error would end the process.
 */
function ignoreLateErrors(socket: Duplex | null | undefined): void {
  socket?.on('error', () => undefined);
}

/** So that later attempts can open connections: an unused one is kept for a minute for each of many hosts. */
function closeIdleSockets({ freeSockets }: http.Agent): void {
  for (const socket of Object.values(freeSockets).flat()) socket?.destroy();
}

/** Addresses that the proxy is asked for, and milliseconds after which no other one is tried. */
const MOST_ADDRESSES = 4;
const TUNNEL_TIME = 15_000;

/** Resolves and checks the name here, and asks the proxy for the first address that it can reach. */
async function openTunnel(
  { host, port }: http.ClientRequestArgs,
  proxy: EgressProxy,
  route: Route,
): Promise<Duplex> {
  const { signal } = route;
  const start = performance.now();
  const isOver = (): boolean => signal.aborted || performance.now() - start > TUNNEL_TIME;
  const addresses = await new Promise<readonly LookupAddress[]>((resolve, reject) => {
    if (isIP(host!) !== 0) return resolve([{ address: host!, family: isIP(host!) }]);
    // An agent does not say whether the request has ended.
    const lookup = guardedLookup(route, () => !isOver());
    lookup(host!, { all: true }, (error, found) =>
      error ? reject(error) : resolve(found as LookupAddress[]),
    );
  });
  let failure: unknown;
  // The owner of the name chooses how many addresses it has, and the request may have ended meanwhile.
  for (const { address } of alternateFamilies(addresses).slice(0, MOST_ADDRESSES)) {
    try {
      return await proxy.connect(address, Number(port), signal);
    } catch (error) {
      failure ??= error;
      if (isOver()) break;
    }
  }
  throw failure;
}

/** Beginning with the family of the first address (RFC 8305, section 4): the proxy may reach one family only. */
function alternateFamilies(addresses: readonly LookupAddress[]): LookupAddress[] {
  const preferred = addresses.filter(({ family }) => family === addresses[0]!.family);
  const others = addresses.filter((address) => !preferred.includes(address));
  return addresses
    .flatMap((_, index) => [preferred[index], others[index]])
    .filter((address) => address !== undefined);
}

/**
 * Checks a literal address, which is never looked up, and refuses Unix sockets.
 *
 * @throws {@link WebhookDestinationBlockedError}
 */
function checkPeerOptions(policy: EgressPolicy, options: http.ClientRequestArgs): void {
  const { host } = options as Partial<TcpNetConnectOpts>;
  // Here `path` is the path of a Unix socket, not of the request.
  if (options.socketPath || options.path) {
    throw new WebhookDestinationBlockedError(
      'The destination was refused: it is a Unix socket; deliveries go to hosts only.',
    );
  }
  if (host && isIP(host) !== 0) policy.checkAddress(host);
}

/** Closes a connection whose peer has an address that is not allowed. */
export function watchPeer(policy: EgressPolicy, socket: Socket): void {
  socket.prependOnceListener('connect', () => {
    const peer = socket.remoteAddress;
    // A connection that was reset at once has no peer address; that is a failure, not a refusal.
    if (peer === undefined) return void socket.destroy(resetAtOnce());
    const blocked = blockedBy(() => policy.checkAddress(peer));
    if (blocked !== undefined) socket.destroy(blocked);
  });
}

/** Explicit, so that the failure is the same before and after TLS is established. */
function resetAtOnce(): NodeJS.ErrnoException {
  return Object.assign(new Error('The connection was reset.'), { code: 'ECONNRESET' });
}

/** Returns what a check throws. */
function blockedBy(check: () => void): Error | undefined {
  try {
    check();
    return undefined;
  } catch (error) {
    return error as Error;
  }
}

/**
 * A lookup that returns allowed addresses only. The connection is made to the address that was checked, so
 * DNS rebinding cannot bypass the check.
 */
function guardedLookup(
  { policy, lookup }: Pick<Route, 'policy' | 'lookup'>,
  isWanted: () => boolean,
): LookupFunction {
  return (hostname, options, callback) => {
    // Always all addresses: a name with a single forbidden address is refused.
    lookup(hostname, { ...options, all: true, isWanted }, (error, addresses) => {
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

/** Some resolvers return no address and no error; the socket would then wait forever. */
function notFound(hostname: string): NodeJS.ErrnoException {
  return Object.assign(new Error(`getaddrinfo ENOTFOUND ${hostname}`), {
    code: 'ENOTFOUND',
    syscall: 'getaddrinfo',
  });
}

/**
 * Closes an idle connection on which the server sends data: it would be taken for the answer to the next
 * request.
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
 * queue like any lost connection, so that requests that wait for a free socket continue.
 */
function refusedSocket(error: Error): Socket {
  const socket = new Socket();
  socket.on('error', () => undefined); // the request may be gone before it listens
  // Not now, since no one listens yet; not later, since a write would fail first, with another error.
  process.nextTick(() => socket.destroy(error));
  return socket;
}

/** Interim answers (1xx) that a server may send ahead of its answer. */
const MOST_INTERIM = 200;

/**
 * Fails a request that gets no final answer: its server sends interim answers without end, which no limit on the answer counts, or
 * changes the protocol.
 */
export function requireFinalAnswer(request: http.ClientRequest): void {
  let interim = 0;
  request.on('information', () => {
    if (++interim > MOST_INTERIM) request.destroy(TOO_MANY_INTERIM);
  });
  // Without a listener, Node ends the request without an error, and its signal no longer has any effect.
  request.on('upgrade', (_answer, socket) => {
    socket.destroy();
    request.emit('error', UNEXPECTED_UPGRADE);
  });
}

const TOO_MANY_INTERIM = Object.assign(new Error('The server sends too many interim answers.'), {
  code: 'HPE_HEADER_OVERFLOW',
});

const UNEXPECTED_UPGRADE = Object.assign(new Error('The answer changes the protocol.'), {
  code: 'HPE_UNEXPECTED_UPGRADE',
});
