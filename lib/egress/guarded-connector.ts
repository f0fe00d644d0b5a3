import dns from 'node:dns';
import { Socket, type LookupFunction } from 'node:net';
import {
  blockedBy,
  checkTarget,
  watchPeer,
  type EgressTlsOptions,
  guardedLookup,
} from './guarded-agent.js';
import type { EgressPolicy } from './egress-policy.js';

/** The target of a connection, as undici passes it. */
interface ConnectorRequest {
  readonly hostname: string;
  readonly socketPath?: string | null;
}

type Connected = (...args: [null, Socket] | [Error, null]) => void;

/** Opens connections for undici. */
type Connector<Request extends ConnectorRequest> = (
  request: Request,
  callback: Connected,
) => unknown;

/** Settings that the guard needs. */
interface ConnectorSettings extends EgressTlsOptions {
  readonly lookup: LookupFunction;
  readonly minVersion: 'TLSv1.2';
  readonly rejectUnauthorized: true;
  readonly allowH2: false;
  readonly timeout: 0;
}

/**
 * Creates a connector for undici that applies the rules of the guarded agents.
 *
 * @param build - undici's `buildConnector`
 */
export function guardConnector<Request extends ConnectorRequest>(
  policy: EgressPolicy,
  build: (settings: ConnectorSettings) => Connector<Request>,
  options: {
    readonly tls?: EgressTlsOptions | undefined;
    readonly lookup?: typeof dns.lookup | undefined;
  } = {},
): Connector<Request> {
  const connect = build({
    ...options.tls,
    lookup: guardedLookup(policy, options.lookup ?? dns.lookup),
    // Explicit, because the environment (NODE_TLS_REJECT_UNAUTHORIZED, NODE_OPTIONS) can weaken the defaults.
    minVersion: 'TLSv1.2',
    rejectUnauthorized: true,
    allowH2: false,
    // The attempt has its own deadline.
    timeout: 0,
  });
  return (request, callback) => {
    const { hostname, socketPath } = request;
    const host = hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
    const blocked = blockedBy(() => checkTarget(policy, { host, socketPath }));
    if (blocked !== undefined) {
      process.nextTick(callback, blocked, null);
      return undefined;
    }
    const socket = connect(request, callback);
    // No token is sent over a connection that cannot be checked.
    if (!(socket instanceof Socket))
      throw new TypeError('undici did not return a socket, so its peer cannot be checked.');
    watchPeer(policy, socket);
    return socket;
  };
}
