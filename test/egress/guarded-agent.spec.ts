import { mkdtempSync, rmSync } from 'node:fs';
import http from 'node:http';
import https, { type RequestOptions } from 'node:https';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import axios, { type AxiosRequestConfig } from 'axios';
import {
  blockedDestination,
  type EgressOptions,
  EgressPolicy,
} from '../../lib/egress/egress-policy.js';
import {
  createGuardedAgents,
  type GuardedAgents,
  type GuardedAgentsOptions,
} from '../../lib/egress/guarded-agent.js';
import { LOOPBACK_HOSTS } from './hostile-urls.js';
import { changingLookup, lookupOf, type Answer } from './scripted-lookup.js';
import {
  startTarget,
  startTlsTarget,
  targetCertificate,
  type TargetServer,
} from './target-server.js';

let target: TargetServer;
const open: (() => unknown)[] = [];

beforeEach(async () => {
  target = await startTarget();
});

afterEach(async () => {
  for (const close of open.splice(0)) await close();
  await target.close();
});

function agentsFor(options: EgressOptions, agentOptions?: GuardedAgentsOptions): GuardedAgents {
  return agentsOf(new EgressPolicy(options), agentOptions);
}

function agentsOf(policy: EgressPolicy, agentOptions?: GuardedAgentsOptions): GuardedAgents {
  const agents = createGuardedAgents(policy, agentOptions);
  open.push(() => agents.destroy());
  return agents;
}

/** Sends a request as `node:http` or `node:https` does; resolves to the status or the error. */
function call(
  options: RequestOptions & { https?: boolean; autoSelectFamily?: boolean },
): Promise<unknown> {
  return new Promise((resolve) => {
    const request = (options.https ? https : http).request(options, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode));
    });
    request.on('error', resolve);
    request.end();
  });
}

/** Sends a request as the publisher does; resolves to the status or the error. */
function callAxios(config: AxiosRequestConfig): Promise<unknown> {
  return axios
    .request({
      adapter: 'http',
      proxy: false,
      maxRedirects: 0,
      validateStatus: () => true,
      ...config,
    })
    .then(
      (response) => response.status,
      (error: unknown) => error,
    );
}

const BLOCKED = { name: 'WebhookDestinationBlockedError', code: 'destination_blocked' };

describe('guarded agents', () => {
  it('connect where the policy allows, and keep the connection for the next request', async () => {
    const { httpAgent } = agentsFor({ allowedAddresses: ['127.0.0.1'] });

    for (let n = 0; n < 3; n++) {
      expect(await call({ host: '127.0.0.1', port: target.port, agent: httpAgent })).toBe(204);
    }
    expect([target.connections, target.requests]).toEqual([1, 3]);
  });

  it.each([true, false])(
    'connect to a name with allowed addresses (autoSelectFamily: %p)',
    async (autoSelectFamily) => {
      const { httpAgent } = agentsFor(
        { allowedAddresses: ['127.0.0.1'] },
        { lookup: lookupOf(['127.0.0.1']) },
      );
      const options = { host: 'hooks.test', port: target.port, agent: httpAgent, autoSelectFamily };

      expect(await call(options)).toBe(204);
    },
  );

  it.each(['127.0.0.1', '::ffff:127.0.0.1', '::1', '0.0.0.0', '169.254.169.254', 'fe80::1%lo'])(
    'refuse the literal %s, which is never looked up',
    async (host) => {
      const { httpAgent } = agentsFor({});

      expect(await call({ host, port: target.port, agent: httpAgent })).toMatchObject(BLOCKED);
      expect(target.connections).toBe(0);
    },
  );

  it('ignore the lookup option of a request', async () => {
    const { httpAgent } = agentsFor({}, { lookup: lookupOf(['10.0.0.1']) });
    const lookup = lookupOf(['127.0.0.1']);

    expect(
      await call({ host: 'hooks.test', port: target.port, agent: httpAgent, lookup }),
    ).toMatchObject(BLOCKED);
    expect(target.connections).toBe(0);
  });

  it.each<[string, Answer, string]>([
    ['a failure', 'EAI_AGAIN', 'EAI_AGAIN'],
    ['an empty answer', [], 'ENOTFOUND'],
  ])('report %s of the resolver unchanged', async (_, answer, code) => {
    const { httpAgent } = agentsFor({}, { lookup: lookupOf(answer) });
    const error = await call({ host: 'hooks.test', agent: httpAgent });

    expect(error).toMatchObject({ code });
    expect(blockedDestination(error)).toBeUndefined();
  });

  it('refuse a Unix socket', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'egress-'));
    const socketPath = join(directory, 'socket');
    let connections = 0;
    const server = createServer(() => connections++);
    await new Promise<void>((resolve) => server.listen(socketPath, resolve));
    open.push(
      () => server.close(),
      () => rmSync(directory, { recursive: true }),
    );
    const { httpAgent } = agentsFor({ allowPrivateNetworks: true });

    expect(await call({ socketPath, agent: httpAgent })).toMatchObject(BLOCKED);
    expect(connections).toBe(0);
  });

  it('check the address that the socket connected to', async () => {
    class Credulous extends EgressPolicy {
      override checkResolved(): void {
        // As if the lookup had been manipulated.
      }
    }
    const lookup = lookupOf(['127.0.0.1']);
    const { httpAgent } = agentsOf(new Credulous({}), { lookup });

    expect(await call({ host: 'hooks.test', port: target.port, agent: httpAgent })).toMatchObject(
      BLOCKED,
    );
    expect(target.requests).toBe(0);
  });

  it('close idle connections if the process has too many open files', async () => {
    const { httpAgent } = agentsFor(
      { allowedAddresses: ['127.0.0.1'] },
      { lookup: changingLookup([['127.0.0.1'], 'EMFILE', ['127.0.0.1']]) },
    );
    const request = (host: string) => call({ host, port: target.port, agent: httpAgent });
    expect(await request('one.test')).toBe(204);
    expect(await request('two.test')).toMatchObject({ code: 'EMFILE' });
    expect(await request('one.test')).toBe(204);

    expect([target.connections, target.requests]).toEqual([2, 2]);
  });

  it('continue with the next request after a refused one', async () => {
    const { httpAgent } = agentsFor({}, { maxSockets: 1 });
    const options = { host: '127.0.0.1', port: target.port, agent: httpAgent };

    const outcomes = await Promise.all([call(options), call(options), call(options)]);

    expect(outcomes).toEqual([0, 1, 2].map(() => expect.objectContaining(BLOCKED)));
  });
});

describe('DNS rebinding', () => {
  const PUBLIC = ['8.8.8.8'];
  // Twenty rounds: what the name answers when it is registered, and then at each attempt.
  const ROUNDS: readonly (readonly Answer[])[] = [
    [PUBLIC, ['127.0.0.1']],
    [PUBLIC, ['127.0.0.1', '8.8.8.8']],
    [PUBLIC, ['8.8.8.8', '127.0.0.1']],
    [PUBLIC, ['2606:4700:4700::1111', '8.8.8.8', '127.0.0.1']],
    [PUBLIC, ['::ffff:127.0.0.1']],
    [PUBLIC, ['::ffff:7f00:1']],
    [PUBLIC, ['0.0.0.0']],
    [PUBLIC, ['::']],
    [PUBLIC, ['::1']],
    [PUBLIC, ['8.8.8.8', '::1']],
    [PUBLIC, ['127.0.0.2']],
    [PUBLIC, ['10.0.0.1', '127.0.0.1']],
    [PUBLIC, ['169.254.169.254', '127.0.0.1']],
    [PUBLIC, ['64:ff9b::7f00:1', '127.0.0.1']],
    [PUBLIC, ['2002:7f00:1::', '127.0.0.1']],
    ['ENOTFOUND', ['127.0.0.1']],
    ['EAI_AGAIN', ['8.8.8.8', '127.0.0.1']],
    [[], ['127.0.0.1']],
    [
      ['8.8.8.8', '2606:4700:4700::1111'],
      ['127.0.0.1', '127.0.0.1'],
    ],
    [PUBLIC, ['fe80::1', '127.0.0.1']],
  ];
  const policy = new EgressPolicy({ allowHttp: true });

  it.each(ROUNDS.map((answers, round) => ({ round: round + 1, answers })))(
    'round $round: $answers never reaches the target',
    async ({ answers }) => {
      const lookup = changingLookup(answers);
      const url = await policy.checkResolvedUrl(`http://hooks.test:${target.port}/`, lookup);
      const { httpAgent, httpsAgent } = agentsOf(policy, { lookup });
      const options = { host: url.hostname, port: url.port };

      expect([
        await call({ ...options, agent: httpAgent, autoSelectFamily: true }),
        await call({ ...options, agent: httpAgent, autoSelectFamily: false }),
        await call({ ...options, agent: httpsAgent, https: true }),
        blockedDestination(await callAxios({ url: url.href, httpAgent })),
      ]).toEqual([0, 1, 2, 3].map(() => expect.objectContaining(BLOCKED)));
      expect(target.connections).toBe(0);
    },
  );

  it('reaches the target through an ordinary agent', async () => {
    const lookup = changingLookup([PUBLIC, ['127.0.0.1']]);
    await policy.checkResolvedUrl(`http://hooks.test:${target.port}/`, lookup);
    const agent = new http.Agent();

    expect(await call({ host: 'hooks.test', port: target.port, agent, lookup })).toBe(204);
  });
});

describe('axios over guarded agents', () => {
  it('delivers where the policy allows', async () => {
    const { httpAgent } = agentsFor({ allowedAddresses: ['127.0.0.1'] });

    expect(
      await callAxios({
        url: `http://127.0.0.1:${target.port}/`,
        method: 'POST',
        data: 'x',
        httpAgent,
      }),
    ).toBe(204);
  });

  it.each(LOOPBACK_HOSTS)('reaches nothing at http://%s/', async (host) => {
    const { httpAgent } = agentsFor({});
    const error = await callAxios({ url: `http://${host}:${target.port}/`, httpAgent });

    expect(blockedDestination(error)).toMatchObject(BLOCKED);
    expect(error).toMatchObject({ isAxiosError: true, code: 'destination_blocked' });
    expect(target.connections).toBe(0);
  });

  it('checks the target of a redirect too', async () => {
    const redirecting = http.createServer((_request, response) => {
      response.writeHead(302, { location: `http://127.0.0.1:${target.port}/` }).end();
    });
    await new Promise<void>((resolve) => redirecting.listen(0, '127.0.0.2', resolve));
    open.push(
      () => redirecting.closeAllConnections(),
      () => redirecting.close(),
    );
    const { port } = redirecting.address() as { port: number };
    const { httpAgent } = agentsFor({ allowedAddresses: ['127.0.0.2'] });

    const error = await callAxios({ url: `http://127.0.0.2:${port}/`, httpAgent, maxRedirects: 5 });

    expect(blockedDestination(error)).toMatchObject(BLOCKED);
    expect(target.connections).toBe(0);
  });
});

describe('TLS through guarded agents', () => {
  const allowed: EgressOptions = { allowedAddresses: ['127.0.0.1'] };
  const lookup = lookupOf(['127.0.0.1']);
  let tlsTarget: TargetServer;

  const callTls = (agents: GuardedAgents | undefined, options: RequestOptions = {}) =>
    call({
      https: true,
      host: 'hooks.test',
      port: tlsTarget.port,
      lookup,
      agent: agents?.httpsAgent ?? new https.Agent(),
      ...options,
    });

  afterEach(() => tlsTarget.close());

  it('trusts the configured authorities', async () => {
    tlsTarget = await startTlsTarget();

    expect(await callTls(agentsFor(allowed, { lookup, tls: { ca: targetCertificate() } }))).toBe(
      204,
    );
  });

  it.each<[string, GuardedAgentsOptions, RequestOptions]>([
    ['by default', {}, {}],
    ['when the request asks not to', {}, { rejectUnauthorized: false }],
    ['when the options ask not to', { tls: { rejectUnauthorized: false } as object }, {}],
  ])('verifies the certificate %s', async (_, agentOptions, requestOptions) => {
    tlsTarget = await startTlsTarget();
    const agents = agentsFor(allowed, { lookup, ...agentOptions });

    expect(await callTls(agents, requestOptions)).toMatchObject({
      code: 'DEPTH_ZERO_SELF_SIGNED_CERT',
    });
    expect(tlsTarget.requests).toBe(0);
  });

  it('verifies the name of the host', async () => {
    tlsTarget = await startTlsTarget();
    const agents = agentsFor(allowed, { lookup, tls: { ca: targetCertificate() } });

    expect(await callTls(agents, { host: 'other.test' })).toMatchObject({
      code: 'ERR_TLS_CERT_ALTNAME_INVALID',
    });
  });

  it('refuses TLS older than 1.2', async () => {
    const old = { minVersion: 'TLSv1', ciphers: 'DEFAULT@SECLEVEL=0' } as const;
    tlsTarget = await startTlsTarget({ ...old, maxVersion: 'TLSv1.1' });
    const agents = agentsFor(allowed, { lookup, tls: { ca: targetCertificate() } });

    expect(await callTls(undefined, { ...old, ca: targetCertificate() })).toBe(204);
    expect(await callTls(agents, old)).toMatchObject({
      code: expect.stringMatching(/^(?:EPROTO|ERR_SSL)/),
    });
    expect(tlsTarget.requests).toBe(1);
  });
});
