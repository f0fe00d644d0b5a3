import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import axios from 'axios';
import { blockedDestination, EgressPolicy } from '../../lib/egress/egress-policy.js';
import { createGuardedAgents, type GuardedAgents } from '../../lib/egress/guarded-agent.js';
import { HOSTILE_URLS } from './hostile-urls.js';
import { NETWORK_EDGES } from './network-edges.js';
import { NoWayOut } from './no-way-out.js';
import { lookupOf } from './scripted-lookup.js';
import { startTarget, type TargetServer } from './target-server.js';

const URLS = Object.values(HOSTILE_URLS)
  .flat()
  .filter((url) => URL.canParse(url) && /^https?:$/.test(new URL(url).protocol))
  // Port 0 is refused for its number alone, which only the policy checks.
  .filter((url) => new URL(url).port !== '0');

let canary: TargetServer;
let agents: GuardedAgents;
let wayOut: NoWayOut;

beforeAll(async () => {
  canary = await startTarget();
});
beforeEach(() => {
  wayOut = new NoWayOut();
  // Every name resolves to the canary, so a refusal is due to the address.
  agents = createGuardedAgents(new EgressPolicy({ allowHttp: true }), {
    lookup: lookupOf(['127.0.0.1']),
  });
});
afterEach(() => {
  agents.destroy();
  wayOut.restore();
});
afterAll(async () => canary.close());

/** The outcome for a client that never checked the URL; the canary listens on the port. */
async function attempt(url: string): Promise<unknown> {
  const target = new URL(url);
  target.port = String(canary.port);
  const { httpAgent, httpsAgent } = agents;
  return axios
    .request({
      url: target.href,
      method: 'POST',
      adapter: 'http',
      proxy: false,
      maxRedirects: 0,
      httpAgent,
      httpsAgent,
    })
    .then(
      ({ status }) => status,
      (error: unknown) => error,
    );
}

describe('an attempt with an unchecked URL', () => {
  it.each(URLS)('ends before a connection: %j', async (url) => {
    const failure = await attempt(url);

    expect(blockedDestination(failure)).toMatchObject({ code: 'destination_blocked' });
    expect(wayOut.tried).toEqual([]);
    expect(canary.connections).toBe(0);
  });

  it('ends before a connection for the first and last address of every special range', async () => {
    const hosts = NETWORK_EDGES.flatMap(([, first, last]) => [first, last]);
    for (const host of hosts) {
      const failure = await attempt(`http://${host.includes(':') ? `[${host}]` : host}/`);
      expect(blockedDestination(failure)).toMatchObject({ code: 'destination_blocked' });
    }

    expect(hosts.length).toBeGreaterThan(50);
    expect(wayOut.tried).toEqual([]);
    expect(canary.connections).toBe(0);
  });
});

describe('the canary', () => {
  it('is reached if its address is allowed', async () => {
    agents = createGuardedAgents(new EgressPolicy({ allowedAddresses: ['127.0.0.1'] }));

    expect(await attempt('http://127.0.0.1/')).toBe(204);
    expect(wayOut.tried).toEqual(['127.0.0.1']);
  });

  it('is the only reachable server: other connections fail below the agents', async () => {
    agents = createGuardedAgents(new EgressPolicy({ allowedAddresses: ['192.0.2.1'] }));

    expect(await attempt('http://192.0.2.1/')).toMatchObject({
      message: expect.stringMatching(/about to leave the machine/),
    });
  });
});
