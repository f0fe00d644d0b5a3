import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { EgressPolicy } from '../../lib/egress/egress-policy.js';
import { EgressProxy } from '../../lib/egress/egress-proxy.js';
import { createGuardedAgents, type GuardedAgents } from '../../lib/egress/guarded-agent.js';
import https from 'node:https';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';
import { HostileReceiver } from '../sending/hostile-receiver.js';
import { TokenEndpoint } from '../sending/token-endpoint.js';
import { ConnectProxy } from './connect-proxy.js';
import { lookupOf } from './scripted-lookup.js';
import { startTlsTarget, type TargetServer, targetCertificate } from './target-server.js';

let bench: PublisherBench | undefined;
let agents: GuardedAgents | undefined;
let receiver: WireReceiver;
let target: TargetServer;
let proxy: ConnectProxy;

beforeEach(async () => {
  receiver = await WireReceiver.start();
  target = await startTlsTarget();
  proxy = await ConnectProxy.start();
});
afterEach(async () => {
  await bench?.stop();
  agents?.destroy();
  bench = agents = undefined;
  await Promise.all([receiver.stop(), target.close(), proxy.stop()]);
});

async function publisher(options: object = {}): Promise<PublisherBench> {
  const ca = targetCertificate().toString();
  bench = await PublisherBench.start({ proxy: `http://${proxy.origin}`, tls: { ca }, ...options });
  return bench;
}

/** What was logged about the proxy at a level. */
const proxyLogs = (level: string) => bench!.logs(level).filter((line) => /egress proxy/.test(line));

const send = async (url: string) => bench!.publisher.send(url, 'order.created', ['x']);

describe('the egress proxy', () => {
  it('opens a tunnel to the address of the endpoint, and sees nothing of an https: request', async () => {
    await publisher();
    const url = `https://127.0.0.1:${target.port}/`;

    expect(await send(url)).toMatchObject({ status: 'delivered' });
    expect(await send(url)).toMatchObject({ status: 'delivered' });
    expect(proxy.targets).toEqual([`127.0.0.1:${target.port}`]);
    expect(target.requests).toBe(2);
    expect(Buffer.concat(proxy.seen).toString('latin1')).not.toContain('Bearer');
  });

  it('opens one for http: too, so that it resolves no name', async () => {
    await publisher();

    expect(await send(receiver.url)).toMatchObject({ status: 'delivered' });
    expect(proxy.targets).toEqual([`127.0.0.1:${receiver.port}`]);
    expect(receiver.requests[0]).toMatchObject({ path: '/hooks' });
  });

  it('is asked for four addresses of a name at most', async () => {
    const addresses = Array.from({ length: 40 }, (_, index) => `127.0.0.${index + 1}`);
    const policy = new EgressPolicy({ allowedAddresses: ['127.0.0.0/8'] });
    proxy.refusal = 'HTTP/1.1 502 Bad Gateway';
    agents = createGuardedAgents(policy, {
      lookup: lookupOf(addresses),
      proxy: new EgressProxy(`http://${proxy.origin}`),
    });
    const request = https.get('https://many.example/', { agent: agents.httpsAgent });
    const [error] = (await once(request, 'error')) as [NodeJS.ErrnoException];

    expect(error.code).toBe('ECONNREFUSED');
    expect(proxy.targets).toEqual(addresses.slice(0, 4).map((address) => `${address}:443`));
  });

  it('gets the user name and the password of its URL, which no log shows', async () => {
    await publisher({ proxy: `http://user:p%40ss-that-no-log-shows@${proxy.origin}` });
    await send(receiver.url);

    const basic = Buffer.from('user:p@ss-that-no-log-shows').toString('base64');
    expect(proxy.authorizations).toEqual([`Basic ${basic}`]);
    expect(new Map(receiver.requests[0]!.headers).has('Proxy-Authorization')).toBe(false);
    expect(inspect(bench, { depth: 30 })).not.toContain('ss-that-no-log-shows');
  });

  it('is asked for the address that was checked, with the certificate of the name', async () => {
    const lookup = ((_name: string, _options: object, callback: (...args: unknown[]) => void) =>
      callback(null, [{ address: '93.184.216.34', family: 4 }])) as never;
    agents = createGuardedAgents(new EgressPolicy({}), {
      lookup,
      proxy: new EgressProxy(`http://${proxy.origin}`),
      tls: { ca: targetCertificate() },
    });
    proxy.port = target.port;
    const { httpsAgent } = agents;

    expect(await statusOf('https://hooks.test/', httpsAgent)).toBe(204);
    expect(proxy.targets).toEqual(['93.184.216.34:443']);
    await expect(statusOf('https://other.test/', httpsAgent)).rejects.toMatchObject({
      code: 'ERR_TLS_CERT_ALTNAME_INVALID',
    });
  });

  it('gets no request for a name with a private address', async () => {
    const addresses = [
      { address: '93.184.216.34', family: 4 },
      { address: '10.0.0.1', family: 4 },
    ];
    const lookup = ((_name: string, _options: object, callback: (...args: unknown[]) => void) =>
      callback(null, addresses)) as never;
    agents = createGuardedAgents(new EgressPolicy({}), {
      lookup,
      proxy: new EgressProxy(`http://${proxy.origin}`),
    });

    await expect(statusOf('https://hooks.test/', agents.httpsAgent)).rejects.toMatchObject({
      code: 'destination_blocked',
    });
    expect(proxy.targets).toEqual([]);
  });

  it('tries the next address if the first cannot be reached', async () => {
    const addresses = [
      { address: '2606:2800:220:1::1', family: 6 },
      { address: '93.184.216.34', family: 4 },
    ];
    const lookup = ((_name: string, _options: object, callback: (...args: unknown[]) => void) =>
      callback(null, addresses)) as never;
    agents = createGuardedAgents(new EgressPolicy({}), {
      lookup,
      proxy: new EgressProxy(`http://${proxy.origin}`),
    });
    proxy.refusal = 'HTTP/1.1 502 Bad Gateway';

    await expect(statusOf('https://hooks.test/', agents.httpsAgent)).rejects.toMatchObject({
      code: 'ECONNREFUSED',
    });
    expect(proxy.targets).toEqual(['[2606:2800:220:1::1]:443', '93.184.216.34:443']);
  });

  it('is asked for addresses of both families, as it may reach one only', async () => {
    const first = Array.from({ length: 8 }, (_, index) => `2606:2800:220:1::${index + 1}`);
    agents = createGuardedAgents(new EgressPolicy({}), {
      lookup: lookupOf([...first, '93.184.216.34', '93.184.216.35']),
      proxy: new EgressProxy(`http://${proxy.origin}`),
    });
    proxy.refusal = 'HTTP/1.1 503 Service Unavailable';

    await expect(statusOf('https://hooks.test/', agents.httpsAgent)).rejects.toThrow();
    expect(proxy.targets).toEqual([
      '[2606:2800:220:1::1]:443',
      '93.184.216.34:443',
      '[2606:2800:220:1::2]:443',
      '93.184.216.35:443',
    ]);
  });

  it.each([
    'http://10.0.0.1/',
    'https://169.254.169.254/latest',
    'https://[::1]/',
    'https://localhost/',
  ])('gets no request for %s', async (url) => {
    await publisher({ allowedAddresses: [] });

    await expect(send(url)).rejects.toMatchObject({ code: 'destination_blocked' });
    expect(proxy.targets).toEqual([]);
  });

  it.each([
    ['HTTP/1.1 407 Proxy Authentication Required', 'proxy_failed'],
    ['HTTP/1.1 403 Forbidden', 'proxy_failed'],
    ['HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/', 'proxy_failed'],
    ['HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 204 x', 'proxy_failed'],
    ['nonsense', 'proxy_failed'],
    ['HTTP/1.1 502 Bad Gateway', 'connection_refused'],
    ['HTTP/1.1 504 Gateway Timeout', 'timeout'],
  ])('fails a delivery that it answers with %j', async (refusal, failureReason) => {
    await publisher();
    proxy.refusal = refusal;

    expect(await send(receiver.url)).toMatchObject({ status: 'scheduled', failureReason });
    expect(receiver.connections).toBe(0);
  });

  describe('in the log', () => {
    const REFUSED = 'HTTP/1.1 407 Proxy Authentication Required';

    it('is a wrong password, once, and its end', async () => {
      await publisher({ proxy: `http://user:p%40ss-that-no-log-shows@${proxy.origin}` });
      const other = `https://127.0.0.1:${target.port}/`;
      for (let outage = 1; outage <= 2; outage++) {
        proxy.refusal = REFUSED;
        for (const url of [receiver.url, other, receiver.url]) await send(url);
        proxy.refusal = undefined;
        await send(outage === 1 ? other : receiver.url);
        expect(proxyLogs('warn')).toHaveLength(outage);
        expect(proxyLogs('log')).toHaveLength(outage);
      }

      expect(proxyLogs('warn')[0]).toBe(
        'The egress proxy answered with status 407. Correct the user name and the password in the URL of "publisher.proxy". Deliveries through it are retried on schedule (proxy_failed).',
      );
      expect(proxyLogs('log')[0]).toBe(
        'The egress proxy opens connections again; the last warning was that it answered with status 407.',
      );
      expect(JSON.stringify(bench!.logged)).not.toContain('ss-that-no-log-shows');
    });

    it('is one that cannot be reached, with the reason', async () => {
      await publisher({ proxy: 'http://127.0.0.1:2' });
      for (let count = 0; count < 3; count++) await send(receiver.url);

      expect(proxyLogs('warn')).toEqual([
        'The egress proxy cannot be reached (ECONNREFUSED). Check that it runs, and its scheme, host and port in "publisher.proxy", or its certificate. Deliveries through it are retried on schedule (proxy_failed).',
      ]);
    });

    it('is a refusal, once, which ends when that destination is connected to', async () => {
      await publisher();
      const other = `https://127.0.0.1:${target.port}/`;
      proxy.refusal = 'HTTP/1.1 403 Forbidden';
      for (const url of [receiver.url, other]) await send(url);
      expect(proxyLogs('warn')).toEqual([
        `The egress proxy answered with status 403 for 127.0.0.1:${receiver.port}. Allow CONNECT to the addresses and ports of your endpoints in its rules. Deliveries through it are retried on schedule (proxy_failed).`,
      ]);
      proxy.refusal = undefined;
      await send(other);
      expect(proxyLogs('log')).toEqual([]);
      await send(receiver.url);

      expect(proxyLogs('log')).toHaveLength(1);
      expect(proxyLogs('warn')).toHaveLength(1);
    });

    it('is a connection that it closes without an answer', async () => {
      const closing = await HostileReceiver.start((socket) => void socket.destroy());
      await publisher({ proxy: new URL(closing.url).origin });
      await send(receiver.url);

      expect(proxyLogs('warn')[0]).toContain(
        `The egress proxy did not answer (ECONNRESET) for 127.0.0.1:${receiver.port}. Check`,
      );
      await closing.stop();
    });

    it('is no endpoint that cannot be reached', async () => {
      await publisher();
      proxy.refusal = 'HTTP/1.1 502 Bad Gateway';
      await send(receiver.url);

      expect(proxyLogs('warn')).toEqual([]);
    });

    it('is not the shutdown', async () => {
      const silent = await HostileReceiver.start(() => {});
      const { logged } = await publisher({ proxy: new URL(silent.url).origin });
      const sent = send(receiver.url).catch(() => 'aborted');
      await silent.received(1);
      await bench!.stop();
      bench = undefined;

      expect(await sent).toBe('aborted');
      expect(JSON.stringify(logged)).not.toContain('egress proxy');
      await silent.stop();
    });
  });

  it('does not open the circuit of an endpoint while it cannot be reached', async () => {
    await publisher({ proxy: 'http://127.0.0.1:2' });
    for (let count = 0; count < 8; count++) {
      expect(await send(receiver.url)).toMatchObject({ failureReason: 'proxy_failed' });
    }
  });

  it('fails a delivery if no connection to it is made in 5 s, which ends before the attempt', async () => {
    // It accepts the connection, and never begins TLS.
    const silent = createServer().listen(0, '127.0.0.1');
    await once(silent, 'listening');
    await publisher({ proxy: `https://127.0.0.1:${(silent.address() as AddressInfo).port}` });
    try {
      expect(await send(receiver.url)).toMatchObject({ failureReason: 'proxy_failed' });
    } finally {
      silent.close();
    }
  });

  it('opens connections to token endpoints too', async () => {
    const tokens = await TokenEndpoint.start();
    const oauth2 = { tokenUrl: tokens.url, clientId: 'a', clientSecret: 'b', header: 'X-Access' };
    await publisher({
      endpoints: [{ id: 'crm', url: receiver.url, credentials: { oauth2 } }],
    });

    expect(await send('crm')).toMatchObject({ status: 'delivered' });
    expect(proxy.targets).toEqual([new URL(tokens.url).host, `127.0.0.1:${receiver.port}`]);
    await tokens.stop();
  });

  it('does not hold a token request for longer than its timeout', async () => {
    const silent = await HostileReceiver.start((socket, request) => {
      if (request > 1) socket.end('HTTP/1.1 407 x\r\n\r\n');
    });
    const tokenUrl = 'https://127.0.0.1/';
    const oauth2 = { tokenUrl, clientId: 'a', clientSecret: 'b', header: 'X-Access' };
    const endpoint = { id: 'crm', url: receiver.url, credentials: { oauth2 } };
    await publisher({ proxy: new URL(silent.url).origin, endpoints: [endpoint] });
    const first = send('crm');
    await silent.received(1);
    await bench!.clock.advance(15_000);

    expect(await first).toMatchObject({ failureReason: 'credentials_unavailable' });
    expect(await send('crm')).toMatchObject({ failureReason: 'proxy_failed' });
    await silent.stop();
  });

  it.each([
    ['socks5://127.0.0.1:1080', 'only http: and https: proxies are supported'],
    ['proxy.internal:3128', 'only http: and https: proxies'],
    ['http://proxy.internal/path', 'without a path or a query'],
    ['http://user:100%@proxy.internal', 'write "%" as "%25"'],
    [true, "must be a URL such as 'http://proxy.internal:3128'"],
  ])('is not configured by %j', async (value, message) => {
    await expect(publisher({ proxy: value })).rejects.toThrow(message);
  });
});

async function statusOf(url: string, agent: https.Agent): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    const request = https.get(url, { agent }, (response) => {
      response.resume();
      resolve(response.statusCode);
    });
    request.on('error', reject);
  });
}
