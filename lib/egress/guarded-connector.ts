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

/** What a connector is told, as undici has it. */
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

/** What a connector is made with, so that the guard holds. */
interface ConnectorSettings extends EgressTlsOptions {
  readonly lookup: LookupFunction;
  readonly minVersion: 'TLSv1.2';
  readonly rejectUnauthorized: true;
  readonly allowH2: false;
  readonly timeout: 0;
}

/**
 * Makes a connector that connects only where the policy allows: the rules of the guarded agents, for undici.
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
    // Both said outright: the environment (NODE_TLS_REJECT_UNAUTHORIZED, NODE_OPTIONS) can weaken defaults.
    minVersion: 'TLSv1.2',
    rejectUnauthorized: true,
    allowH2: false,
    // The attempt has a deadline of its own.
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
    // One that cannot be watched is none to send a token over.
    if (!(socket instanceof Socket)) throw new TypeError('undici gives no socket to watch.');
    watchPeer(policy, socket);
    return socket;
  };
}
