import { createRequire } from 'node:module';
import type { AxiosAdapter } from 'axios';
import type { EgressPolicy } from '../egress/egress-policy.js';
import type { EgressTlsOptions, GuardedAgents } from '../egress/guarded-agent.js';
import { guardConnector } from '../egress/guarded-connector.js';
import { OpenedConnection } from './opened-connection.js';
import { undiciAdapter } from './undici.adapter.js';

/** Sends POST requests of HttpService over undici, with the egress guard inside. */
export interface UndiciTransport {
  readonly adapter: AxiosAdapter;
  /** Closes all connections. */
  close(): void;
}

/** The first version whose handlers get a controller, which is what the adapter is written for. */
const LEAST_MAJOR = 7;

/**
 * Loads undici where the application has it.
 *
 * @returns `undefined` where it is missing, too old, or not made for this version of Node
 */
export async function loadUndici(
  policy: EgressPolicy,
  { agents, tls }: { readonly agents: GuardedAgents; readonly tls: EgressTlsOptions | undefined },
): Promise<UndiciTransport | undefined> {
  try {
    const { version } = createRequire(import.meta.url)('undici/package.json') as {
      version: string;
    };
    if (Number.parseInt(version, 10) < LEAST_MAJOR) return undefined;
    const { Agent, buildConnector } = await import('undici');
    const opened = new OpenedConnection();
    const connect = guardConnector(policy, (settings) => buildConnector({ ...settings }), { tls });
    const agent = new Agent({
      connect: opened.watch(connect),
      // One request at a time on a connection: a slow answer holds up nobody else's.
      pipelining: 1,
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    return {
      adapter: await undiciAdapter(agent, agents, opened),
      close: () => void agent.destroy().catch(() => {}),
    };
  } catch {
    return undefined;
  }
}
