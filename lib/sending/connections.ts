import { createHash } from 'node:crypto';
import type http from 'node:http';
import type { AxiosRequestConfig } from 'axios';
import type { EgressPolicy } from '../egress/egress-policy.js';
import type { EgressProxy } from '../egress/egress-proxy.js';
import {
  createGuardedAgents,
  type EgressTlsOptions,
  type GuardedAgents,
} from '../egress/guarded-agent.js';
import type { ClientCertificate } from './endpoint-credentials.js';

export interface TransportOptions {
  readonly egress: EgressPolicy;
  readonly tls: EgressTlsOptions | undefined;
  readonly proxy: EgressProxy | undefined;
}

/** The connections of one identity: that of the publisher, or of a client certificate. */
export class Connections {
  /** Keep connections for further requests. */
  private readonly keepAliveAgents: GuardedAgents;
  readonly settings: DeliverySettings;
  requests = 0;
  /** The settings that its requests share, once there was one. */
  shared: AxiosRequestConfig | undefined;
  /**
   * For requests that axios sends. They keep no connections: axios would keep that of a HEAD, and a late body of its answer
   * would be read as the answer to the next request.
   */
  private readonly oneShotAgents: GuardedAgents;

  constructor({ egress, tls, proxy }: TransportOptions) {
    this.keepAliveAgents = createGuardedAgents(egress, { tls, proxy });
    this.oneShotAgents = createGuardedAgents(egress, { tls, proxy, keepAlive: false });
    const { httpAgent, httpsAgent } = this.oneShotAgents;
    this.settings = { ...DELIVERY_SETTINGS, httpAgent, httpsAgent };
  }

  /** For a request that axios does not send: the agent that an interceptor has set, or else the one that keeps connections. */
  agentOf(config: AxiosRequestConfig, name: 'httpAgent' | 'httpsAgent'): http.Agent {
    const agent = config[name] as http.Agent;
    return agent === this.settings[name] ? this.keepAliveAgents[name] : agent;
  }

  close(): void {
    this.keepAliveAgents.destroy();
    this.oneShotAgents.destroy();
  }
}

/** Client certificates whose connections are kept; the least recently used one without a request is closed. */
const MAX_IDENTITIES = 200;

/** The connections of all identities: no connection is shared by two of them. */
export class IdentityConnections {
  private readonly publisher: Connections;
  private readonly byCertificate = new Map<string, Connections>();

  constructor(private readonly options: TransportOptions) {
    this.publisher = new Connections(options);
  }

  /** @param certificate - of an endpoint; default: that of the publisher, if it has one */
  of(certificate: ClientCertificate | undefined): Connections {
    if (certificate === undefined) return this.publisher;
    const { cert, key, ca = this.options.tls?.ca } = certificate;
    // Nothing else of the publisher's tls: its own certificate is another identity.
    const tls = { cert, key, ca };
    const identity = createHash('sha256').update(JSON.stringify(tls)).digest('base64');
    const connections =
      this.byCertificate.get(identity) ?? new Connections({ ...this.options, tls });
    this.byCertificate.delete(identity);
    this.byCertificate.set(identity, connections);
    if (this.byCertificate.size > MAX_IDENTITIES) this.closeIdle(connections);
    return connections;
  }

  close(): void {
    for (const connections of [this.publisher, ...this.byCertificate.values()]) connections.close();
  }

  private closeIdle(current: Connections): void {
    for (const [identity, connections] of this.byCertificate) {
      if (connections === current || connections.requests > 0) continue;
      this.byCertificate.delete(identity);
      return connections.close();
    }
  }
}

/** Bytes of an answer that are read; beyond its status it says little. */
const MAX_ANSWER_BYTES = 65_536;

/**
 * Settings of every delivery, whatever the application has set on its HttpService for another purpose: its defaults could replace
 * the Authorization header, send the token elsewhere, or bypass the egress guard.
 */
const DELIVERY_SETTINGS = {
  responseType: 'arraybuffer',
  decompress: false,
  maxContentLength: MAX_ANSWER_BYTES,
  maxRedirects: 0,
  validateStatus: (): boolean => true,
  // A proxy from the environment would bypass the egress guard.
  proxy: false,
  // The attempt has its own deadline; the timeout of axios does not end a slowly dripping answer.
  timeout: 0,
  auth: null,
  baseURL: '',
  // For HTTP/2, axios opens sessions without an agent, and so without the guard.
  httpVersion: 1,
  http2Options: null,
  insecureHTTPParser: false,
  params: null,
  socketPath: null,
  transport: null,
} as const;

/** The settings of a delivery that decide how it is sent, with the agents it is sent through if axios sends it. */
type DeliverySettings = typeof DELIVERY_SETTINGS &
  Required<Pick<AxiosRequestConfig, 'httpAgent' | 'httpsAgent'>>;

/** Settings that decide which address a request is sent to. */
const DECISIVE = [
  'httpAgent',
  'httpsAgent',
  'httpVersion',
  'maxRedirects',
  'proxy',
  'socketPath',
  'transport',
];

/** All settings of a delivery but the agents, and those that only the HTTP adapter of axios supports. */
const SENT_WITH = [
  ...Object.keys(DELIVERY_SETTINGS),
  'maxRate',
  'onUploadProgress',
  'onDownloadProgress',
];

/** Whether interceptors and defaults have left the settings of a delivery as they are, except the agents, and added none. */
export function isUnchanged(config: AxiosRequestConfig, settings: DeliverySettings): boolean {
  const { data } = config as { readonly data?: unknown };
  return (
    (data === undefined || Buffer.isBuffer(data)) &&
    changedSetting(config, settings, SENT_WITH) === undefined
  );
}

/**
 * A warning for an error that an interceptor of the application seems to have thrown ahead of the request.
 *
 * @param name - of the error; its message may quote data or credentials
 */
export function thrownWarning(name: string): string {
  return `HttpService threw ${name}, and the attempt failed (network): an interceptor probably threw it. Correct the interceptor, or pass the publisher an HttpService without it ("httpModule").`;
}

/**
 * A warning if an interceptor of the application made a request bypass the egress guard, perhaps on purpose: for a proxy.
 *
 * @param outcome - the response or the error, to which axios attaches the settings that were used
 */
export function bypassWarning(asked: AxiosRequestConfig, outcome: unknown): string | undefined {
  try {
    const { config } = outcome as { config?: object };
    if (typeof config !== 'object') return undefined;
    const names = asked.adapter === undefined ? DECISIVE : ['adapter', ...DECISIVE];
    const changed = changedSetting(config, asked, names);
    return changed === undefined
      ? undefined
      : `An interceptor of HttpService replaces ${changed}: the egress guard checks the URLs of deliveries, but cannot check the addresses they are sent to. If this is not intended, pass the publisher an HttpService without the interceptor ("httpModule").`;
  } catch {
    // Reading a thrown value may throw.
    return undefined;
  }
}

/** Returns the first of the named settings that has another value; a missing one is as good as `null`, `0` or `false`. */
function changedSetting(
  config: object,
  settings: object,
  names: readonly string[],
): string | undefined {
  const [actual, expected] = [config, settings] as readonly Partial<Record<string, unknown>>[];
  return names.find((name) => (actual![name] || null) !== (expected![name] || null));
}
