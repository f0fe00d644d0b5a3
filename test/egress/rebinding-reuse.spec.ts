import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import http, { type Agent } from 'node:http';
import https from 'node:https';
import { EgressPolicy } from '../../lib/egress/egress-policy.js';
import { createGuardedAgents, type GuardedAgents } from '../../lib/egress/guarded-agent.js';
import { changingLookup, type Answer } from './scripted-lookup.js';
import {
  startTarget,
  startTlsTarget,
  targetCertificate,
  type TargetServer,
} from './target-server.js';

const ALLOWED = '127.0.0.2';
const CANARY = '127.0.0.1';

let agents: GuardedAgents | undefined;
const servers: TargetServer[] = [];

beforeEach(() => {
  agents = undefined;
});
afterEach(async () => {
  agents?.destroy();
  for (const server of servers.splice(0)) await server.close();
});

/** The canary and the allowed server on one port: a name that is rebound leads from one to the other. */
async function twins(isTls: boolean): Promise<{ canary: TargetServer; target: TargetServer }> {
  const canary = isTls ? await startTlsTarget() : await startTarget();
  const target = isTls
    ? await startTlsTarget({}, ALLOWED, canary.port)
    : await startTarget(ALLOWED, canary.port);
  servers.push(canary, target);
  return { canary, target };
}

function agentFor(isTls: boolean, answers: readonly Answer[], asked: string[]): Agent {
  agents = createGuardedAgents(new EgressPolicy({ allowedAddresses: [ALLOWED] }), {
    lookup: changingLookup(answers, asked),
    tls: { ca: targetCertificate() },
  });
  return isTls ? agents.httpsAgent : agents.httpAgent;
}

async function call(
  isTls: boolean,
  agent: Agent,
  port: number,
  headers: Record<string, string> = {},
): Promise<unknown> {
  return new Promise((resolve) => {
    (isTls ? https : http)
      .request({ host: 'hooks.test', port, agent, headers }, (response) => {
        response.resume().on('end', () => resolve(response.statusCode));
      })
      .on('error', resolve)
      .end();
  });
}

const BLOCKED = expect.objectContaining({ code: 'destination_blocked' });

describe.each([
  ['http', false],
  ['https', true],
])('a name that later resolves to the canary, over %s', (_, isTls) => {
  it('is resolved once for each connection, which uses the checked address', async () => {
    const { canary, target } = await twins(isTls);
    const asked: string[] = [];
    const agent = agentFor(isTls, [[ALLOWED], [CANARY]], asked);

    expect(await call(isTls, agent, target.port)).toBe(204);
    expect(asked).toEqual(['hooks.test']);
    expect([target.requests, canary.connections]).toEqual([1, 0]);
  });

  it('sends requests on an open connection to the checked server only', async () => {
    const { canary, target } = await twins(isTls);
    const asked: string[] = [];
    const agent = agentFor(isTls, [[ALLOWED], [CANARY]], asked);
    const answers = [await call(isTls, agent, target.port), await call(isTls, agent, target.port)];

    expect(answers).toEqual([204, 204]);
    expect([target.connections, target.requests, canary.connections]).toEqual([1, 2, 0]);
  });

  it('is refused for the next connection, even after many allowed ones', async () => {
    const { canary, target } = await twins(isTls);
    const agent = agentFor(isTls, [[ALLOWED], [ALLOWED], [CANARY]], []);
    const close = { Connection: 'close' };
    const answers = [
      await call(isTls, agent, target.port, close),
      await call(isTls, agent, target.port, close),
      await call(isTls, agent, target.port, close),
      await call(isTls, agent, target.port, close),
    ];

    expect(answers).toEqual([204, 204, BLOCKED, BLOCKED]);
    expect(canary.connections).toBe(0);
  });

  it('is refused even if it also has an allowed address, in either order', async () => {
    const { canary, target } = await twins(isTls);
    const agent = agentFor(
      isTls,
      [
        [ALLOWED, CANARY],
        [CANARY, ALLOWED],
        ['::1', ALLOWED],
      ],
      [],
    );
    const answers = [0, 1, 2].map(async () => call(isTls, agent, target.port));

    expect(await Promise.all(answers)).toEqual([BLOCKED, BLOCKED, BLOCKED]);
    expect([target.connections, canary.connections]).toEqual([0, 0]);
  });
});
