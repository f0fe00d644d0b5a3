import { createHash } from 'node:crypto';
import type { AxiosAdapter } from 'axios';
import type { EgressPolicy } from '../egress/egress-policy.js';
import type { EgressProxy } from '../egress/egress-proxy.js';
import {
  createGuardedAgents,
  type EgressTlsOptions,
  type GuardedAgents,
} from '../egress/guarded-agent.js';
import { DELIVERY_SETTINGS, type DeliverySettings } from './delivery-settings.js';
import type { ClientCertificate } from './endpoint-credentials.js';

/** Options of the connections to endpoints. */
export interface TransportOptions {
  readonly egress: EgressPolicy;
  readonly tls: EgressTlsOptions | undefined;
  readonly proxy: EgressProxy | undefined;
}

/** The connections of one identity: that of the publisher, or of a client certificate. */
export class Connections {
  /** Keep connections for further requests. */
  readonly keepAliveAgents: GuardedAgents;
  readonly settings: DeliverySettings;
  /** Requests that are under way. */
  requests = 0;
  /** Sends requests over these connections. */
  adapter: AxiosAdapter | undefined;
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
    const { cert, key, passphrase, ca = this.options.tls?.ca } = certificate;
    // Nothing else of the publisher's tls: its own certificate is another identity.
    const tls = { cert, key, passphrase, ca };
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
