import { createPrivateKey, generateKeyPairSync } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { once } from 'node:events';
import https from 'node:https';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { MemoryEndpointStore, WebhookDeliveries, WebhookEndpoints } from 'nestjs-webhook-token';
import type {
  ClientCertificate,
  EndpointCredentials,
} from '../../lib/sending/endpoint-credentials.js';
import { OAuthTokens } from '../../lib/sending/oauth-tokens.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver, type WireRequest } from '../publisher/wire-receiver.js';
import { Gate } from '../fixtures/gate.js';
import { TokenEndpoint } from './token-endpoint.js';

const CLIENT_SECRET = 'client-secret-that-no-log-shows';
const API_KEY = 'key-123';
const profile = 'standard-webhooks';

let bench: PublisherBench;
let receiver: WireReceiver;
let tokens: TokenEndpoint;

beforeEach(async () => {
  [receiver, tokens] = await Promise.all([WireReceiver.start(), TokenEndpoint.start()]);
  bench = await PublisherBench.start();
});
afterEach(async () => {
  await bench.stop();
  await Promise.all([receiver.stop(), tokens.stop()]);
});

const endpoints = (): WebhookEndpoints => bench.module.get(WebhookEndpoints);
const oauth2 = (more: object = {}): EndpointCredentials => ({
  oauth2: { tokenUrl: tokens.url, clientId: 'shop', clientSecret: CLIENT_SECRET, ...more },
});

async function created(credentials: EndpointCredentials, more: object = {}): Promise<string> {
  const { endpoint } = await endpoints().create({
    id: 'crm',
    url: receiver.url,
    profile,
    credentials,
    ...more,
  });
  return endpoint.id;
}

const send = async (id = 'crm') => bench.publisher.send(id, 'invoice.paid', ['x']);

function header({ headers }: WireRequest, name: string): string[] {
  return headers.filter(([one]) => one.toLowerCase() === name.toLowerCase()).map(([, v]) => v);
}
const authorizations = (): string[] =>
  receiver.requests.flatMap((request) => header(request, 'authorization'));

describe('secret headers of an endpoint', () => {
  it('are sent in place of its other headers with the same names, beside the token', async () => {
    await created(
      { headers: { 'X-Api-Key': API_KEY, 'user-agent': 'shop/1' } },
      { profile: 'webhook-token', headers: { 'x-api-key': 'public' } },
    );

    expect(await send()).toMatchObject({ status: 'delivered' });
    const [request] = receiver.requests;
    expect(header(request!, 'x-api-key')).toEqual([API_KEY]);
    expect(header(request!, 'user-agent')).toEqual(['shop/1']);
    expect(header(request!, 'authorization')).toEqual([`Bearer ${request!.token}`]);
  });

  it('may be Authorization if no token is in it', async () => {
    await created({ headers: { Authorization: 'Basic c2hvcDpzZWNyZXQ=' } });

    expect(await send()).toMatchObject({ status: 'delivered' });
    expect(authorizations()).toEqual(['Basic c2hvcDpzZWNyZXQ=']);
  });

  it('are not part of a request that the application sends itself', async () => {
    await created({ headers: { 'X-Api-Key': API_KEY } });
    const { headers } = await bench.publisher.sign('crm', 'invoice.paid', ['x']);

    expect(Object.keys(headers)).not.toContain('X-Api-Key');
  });

  it.each([
    ['Authorization with a token in it', { headers: { authorization: 'x' } }, {}],
    ['OAuth 2 in the header of the token', undefined, {}],
    ['in tandem', { headers: { Authorization: 'x' } }, { profile: ['webhook-token', profile] }],
  ])('are refused: %s', async (_, credentials, more) => {
    const creating = created(credentials ?? oauth2(), { profile: 'webhook-token', ...more });

    await expect(creating).rejects.toMatchObject({
      code: 'invalid_option',
      message: expect.stringMatching(
        /^credentials: needs the header Authorization.*use the profile/,
      ),
    });
  });

  it('stay with their wire format, and wait if the publisher changes it', async () => {
    const endpointStore = new MemoryEndpointStore();
    const sealingKeys = [{ id: '1', key: Buffer.alloc(32, 7).toString('hex') }];
    await bench.stop();
    bench = await PublisherBench.start({
      endpointStore,
      sealingKeys,
      profile,
      secret: `whsec_${'A'.repeat(44)}`,
    });
    await created({ headers: { Authorization: 'Basic x' } }, { profile: undefined });
    await expect(endpoints().update('crm', { profile: 'webhook-token' })).rejects.toMatchObject({
      problems: [expect.objectContaining({ path: 'credentials' })],
    });
    await bench.stop();
    bench = await PublisherBench.start({ endpointStore, sealingKeys });

    expect(await send()).toMatchObject({ status: 'scheduled', failureReason: 'no_signing_key' });
    expect(receiver.requests).toEqual([]);
  });
});

describe('credentials of a managed endpoint', () => {
  it('are never shown, and only their kinds are listed', async () => {
    await created({ ...oauth2(), headers: { 'X-Api-Key': API_KEY } });
    tokens.answer = () => ({ status: 401, body: { error: 'invalid_client', hint: CLIENT_SECRET } });
    receiver.script = () => ({ status: 500, body: 'x' });
    await send();
    const view = await endpoints().get('crm');
    const failed = await endpoints()
      .create({ url: receiver.url, credentials: { x: CLIENT_SECRET } as never })
      .catch((error: unknown) => error);

    expect(view.credentials).toEqual(['headers', 'oauth2']);
    const shown = inspect([view, await endpoints().list(), failed, bench.logged], { depth: 20 });
    expect(shown).not.toContain(CLIENT_SECRET);
    expect(shown).not.toContain(API_KEY);
    expect(bench.logs('warn').join()).toContain('status 401 and the error invalid_client');
  });

  it('are removed from an answer that echoes them', async () => {
    await created({ ...oauth2({ header: 'X-Access' }), headers: { 'X-Api-Key': API_KEY } });
    receiver.script = ({ headers }) => ({
      status: 500,
      headers: { 'Content-Type': 'text/plain' },
      body: JSON.stringify(headers),
    });
    const { deliveryId } = (await bench.publisher.send('crm', 'invoice.paid', ['x'])) as never;
    const [delivery] = (await bench.module.get(WebhookDeliveries).list()).deliveries;
    const stored = await bench.module.get(WebhookDeliveries).get(deliveryId ?? delivery!.id);

    const { answer } = stored!.attempts.at(-1)!;
    expect(answer).toContain('X-Api-Key');
    expect(answer).not.toContain(API_KEY);
    expect(answer).not.toContain('access-token-1');
  });

  it.each([`${API_KEY} `, `Basic ${API_KEY}\t`])(
    'are removed from an answer that echoes %j without the space at its end',
    async (value) => {
      await created({ headers: { 'X-Api-Key': value } });
      receiver.script = () => ({
        status: 500,
        headers: { 'Content-Type': 'text/plain' },
        body: `unknown key ${API_KEY}`,
      });
      await send();
      const [delivery] = (await bench.module.get(WebhookDeliveries).list()).deliveries;
      const stored = await bench.module.get(WebhookDeliveries).get(delivery!.id);

      expect(stored!.attempts.at(-1)!.answer).toBe('unknown key [header]');
    },
  );

  it('are removed from an answer that repeats each of many words of theirs', async () => {
    await created({ headers: { 'X-Api-Key': 'a '.repeat(4_000).trim() } });
    receiver.script = () => ({
      status: 500,
      headers: { 'Content-Type': 'text/plain' },
      body: 'a'.repeat(16_384),
    });
    await send();
    const [delivery] = (await bench.module.get(WebhookDeliveries).list()).deliveries;
    const stored = await bench.module.get(WebhookDeliveries).get(delivery!.id);

    expect(stored!.attempts.at(-1)!.answer).toBe('[header]');
  });

  it('are kept by an update, replaced as a whole, and removed by null', async () => {
    await created({ headers: { 'X-Api-Key': API_KEY } });
    await endpoints().update('crm', { description: 'changed', url: `${receiver.url}/new` });
    await send();
    expect(
      (await endpoints().update('crm', { credentials: { headers: { 'X-Other': 'b' } } }))
        .credentials,
    ).toEqual(['headers']);
    await send();
    expect((await endpoints().update('crm', { credentials: null })).credentials).toBeUndefined();
    await send();

    const sent = receiver.requests.map((one) => [
      ...header(one, 'x-api-key'),
      ...header(one, 'x-other'),
    ]);
    expect(sent).toEqual([[API_KEY], ['b'], []]);
  });

  it('are not sent to another server by a change of the URL', async () => {
    await created({ headers: { 'X-Api-Key': API_KEY } });
    const other = await WireReceiver.start();
    const moving = endpoints().update('crm', { url: other.url });

    await expect(moving).rejects.toMatchObject({
      code: 'invalid_option',
      message: expect.stringMatching(/^url: is at another origin/),
    });
    await endpoints().update('crm', {
      url: other.url,
      credentials: { headers: { 'X-Api-Key': 'new' } },
    });
    await send();
    expect(other.requests.flatMap((one) => header(one, 'x-api-key'))).toEqual(['new']);
    await other.stop();
  });

  it('are not sent to another server by a change of the store', async () => {
    const endpointStore = new MemoryEndpointStore();
    await bench.stop();
    bench = await PublisherBench.start({ endpointStore });
    await created({ headers: { 'X-Api-Key': API_KEY } });
    const other = await WireReceiver.start();
    const stored = (await endpointStore.find('crm'))!;
    await endpointStore.replace({ ...stored, url: other.url, version: stored.version + 1 });

    expect(JSON.stringify(stored)).not.toContain(API_KEY);
    expect(await send()).toMatchObject({ status: 'scheduled', failureReason: 'no_signing_key' });
    expect(other.requests).toEqual([]);
    await other.stop();
  });

  it('are sealed again with a new sealing key', async () => {
    const endpointStore = new MemoryEndpointStore();
    const [old, next] = [1, 2].map((id) => ({
      id: `${id}`,
      key: Buffer.alloc(32, id * 50 + 1).toString('hex'),
    }));
    for (const sealingKeys of [[old!], [next!, old!], [next!]]) {
      await bench.stop();
      bench = await PublisherBench.start({ endpointStore, sealingKeys });
      if (sealingKeys[0] === old) await created({ headers: { 'X-Api-Key': API_KEY } });
      else if (sealingKeys.length === 2) expect(await endpoints().reseal()).toBe(1);
    }
    expect(await endpoints().reseal()).toBe(0);

    expect(await send()).toMatchObject({ status: 'delivered' });
    expect(header(receiver.requests[0]!, 'x-api-key')).toEqual([API_KEY]);
  });

  it.each<[string, unknown, string]>([
    ['none', {}, 'credentials: is empty: leave it out, or set certificate, headers or oauth2'],
    ['a misspelt kind', { header: {} }, 'did you mean "headers"?'],
    [
      'a header without a value',
      { headers: { 'X-A': '' } },
      'credentials.headers["X-A"]: has no value; is the environment variable set?',
    ],
    [
      'a header of spaces',
      { headers: { 'X-A': ' \t' } },
      'credentials.headers["X-A"]: has no value',
    ],
    ['a header twice', { headers: { 'X-A': '1', 'x-a': '2' } }, 'is listed twice'],
    ['a header that frames', { headers: { 'Content-Length': '1' } }, 'is set by the library'],
    ['a value that ends the header', { headers: { 'X-A': 'a\r\nX-B: b' } }, 'cannot carry'],
    ['a certificate without a key', { certificate: { cert: 'x' } }, 'certificate.key'],
    [
      'a certificate that is none',
      { certificate: { cert: 'x', key: 'y' } },
      'pass certificates and keys as PEM',
    ],
    [
      'two values for one header',
      {
        headers: { 'X-A': '1' },
        oauth2: { tokenUrl: 'https://a.example', clientId: 'a', clientSecret: 'b', header: 'x-a' },
      },
      'choose another oauth2.header',
    ],
    [
      'a token endpoint in a private network',
      { oauth2: { tokenUrl: 'http://169.254.169.254/token', clientId: 'a', clientSecret: 'b' } },
      'credentials.oauth2.tokenUrl: The destination "169.254.169.254" was refused',
    ],
  ])('are refused: %s', async (_, credentials, message) => {
    await expect(created(credentials as EndpointCredentials)).rejects.toMatchObject({
      code: 'invalid_option',
      message: expect.stringContaining(message),
    });
  });
});

describe('OAuth 2 client credentials', () => {
  it('get an access token once, which all deliveries share until shortly before it expires', async () => {
    await created(oauth2({ scope: 'hooks:write', parameters: { audience: 'crm' } }));
    await Promise.all(Array.from({ length: 5 }, async () => send()));
    await bench.clock.advance(3_500_000);
    await send();
    expect(tokens.requests).toHaveLength(1);
    await bench.clock.advance(50_000);
    await send();

    const basic = Buffer.from(`shop:${CLIENT_SECRET}`).toString('base64');
    expect(tokens.requests).toHaveLength(2);
    expect(tokens.requests[0]).toEqual({
      authorization: `Basic ${basic}`,
      form: { grant_type: 'client_credentials', scope: 'hooks:write', audience: 'crm' },
    });
    expect(authorizations()).toEqual([
      ...Array<string>(6).fill('Bearer access-token-1'),
      'Bearer access-token-2',
    ]);
  });

  it.each([0, '', -1, 'soon'])(
    'keep a token that expires in %j, which nothing can',
    async (expires_in) => {
      const body = { access_token: 'kept', token_type: 'Bearer', expires_in };
      tokens.answer = () => ({ body });
      await created(oauth2());
      await send();
      await send();

      expect(tokens.requests).toHaveLength(1);
    },
  );

  it('renew a token that expires soon after four fifths of its life', async () => {
    const body = { access_token: 'short', token_type: 'Bearer', expires_in: 50 };
    tokens.answer = () => ({ body });
    await created(oauth2());
    await send();
    await bench.clock.advance(39_999);
    await send();
    const before = tokens.requests.length;
    await bench.clock.advance(1);
    await send();

    expect([before, tokens.requests.length]).toEqual([1, 2]);
  });

  it('are sent in the body on request, and the token in a header beside the webhook token', async () => {
    await created(oauth2({ clientAuthentication: 'body', header: 'X-Access' }), {
      profile: 'webhook-token',
    });
    await send();

    expect(tokens.requests[0]).toEqual({
      authorization: undefined,
      form: { grant_type: 'client_credentials', client_id: 'shop', client_secret: CLIENT_SECRET },
    });
    expect(header(receiver.requests[0]!, 'x-access')).toEqual(['Bearer access-token-1']);
    expect(authorizations()).toEqual([`Bearer ${receiver.requests[0]!.token}`]);
  });

  it('renew a token once that the endpoint refuses, in the same attempt', async () => {
    await created(oauth2());
    receiver.script = ({ headers }) => ({
      status: headers.some(([, v]) => v.endsWith('-1')) ? 401 : 204,
    });

    expect(await send()).toMatchObject({ status: 'delivered', attempts: 1 });
    expect(authorizations()).toEqual(['Bearer access-token-1', 'Bearer access-token-2']);
  });

  it('record the HEAD that was refused if its token cannot be renewed', async () => {
    await created(oauth2({ header: 'X-Access' }), { profile: 'webhook-token' });
    receiver.script = () => ({ status: 401 });
    const issue = tokens.answer;
    tokens.answer = (index) => (index === 1 ? issue(index) : { status: 500, body: {} });
    await bench.publisher.send('crm', 'invoice.paid', {});
    const [delivery] = (await bench.module.get(WebhookDeliveries).list()).deliveries;
    const stored = await bench.module.get(WebhookDeliveries).get(delivery!.id);

    expect(receiver.requests.map(({ method }) => method)).toEqual(['HEAD']);
    expect(stored!.attempts).toEqual([
      expect.objectContaining({ method: 'HEAD', failureReason: 'credentials_unavailable' }),
    ]);
  });

  it('do not loop at an endpoint that refuses every token', async () => {
    await created(oauth2());
    receiver.script = () => ({ status: 401 });

    expect(await send()).toMatchObject({ status: 'scheduled', failureReason: 'http_401' });
    expect(receiver.requests).toHaveLength(2);
    expect(tokens.requests).toHaveLength(2);
  });

  it.each<[string, { status?: number; headers?: Record<string, string>; body: unknown }]>([
    ['redirects', { status: 307, headers: { Location: '/other' }, body: '' }],
    [
      'changes the protocol',
      { status: 101, headers: { connection: 'upgrade', upgrade: 'h2c' }, body: '' },
    ],
    ['refuses the client', { status: 401, body: { error: 'invalid_client' } }],
    ['answers no JSON', { body: '<html>' }],
    ['issues no token', { body: { token_type: 'Bearer' } }],
    [
      'issues a token that breaks the header',
      { body: { access_token: 'a\r\nb', token_type: 'Bearer' } },
    ],
    ['issues another type', { body: { access_token: 'abc', token_type: 'mac' } }],
    [
      'answers without end',
      {
        body: JSON.stringify({ access_token: 'abc', token_type: 'Bearer', x: 'y'.repeat(70_000) }),
      },
    ],
  ])('send nothing while the token endpoint %s', async (_, answer) => {
    await created(oauth2());
    const valid = tokens.answer;
    tokens.answer = () => answer;

    expect(await send()).toMatchObject({
      status: 'scheduled',
      failureReason: 'credentials_unavailable',
    });
    expect(receiver.requests).toEqual([]);
    expect(tokens.requests).toHaveLength(1);
    tokens.answer = valid;
    await bench.clock.advance(5_000);
    await bench.reported(2);
    expect(receiver.requests).toHaveLength(1);
  });

  it.each([
    [undefined, 'the token endpoint answered without a token_type'],
    ['mac', 'the token endpoint issued a token of another type than Bearer'],
  ])('log why a token of type %s is not used', async (token_type, why) => {
    tokens.answer = () => ({ body: { access_token: 'abc', token_type } });
    await created(oauth2());
    await send();

    expect(bench.logs('warn')).toEqual([`endpoint "crm" gets no deliveries: ${why}`]);
  });

  it('are not sent to a token endpoint whose address has become private', async () => {
    const endpointStore = new MemoryEndpointStore();
    const sealingKeys = [{ id: '1', key: Buffer.alloc(32, 7).toString('hex') }];
    await bench.stop();
    const allowedAddresses = ['127.0.0.1', '127.0.0.2'];
    bench = await PublisherBench.start({ endpointStore, sealingKeys, allowedAddresses });
    await created(oauth2({ tokenUrl: tokens.url.replace('127.0.0.1', '127.0.0.2') }));
    await bench.stop();
    allowedAddresses.pop();
    bench = await PublisherBench.start({ endpointStore, sealingKeys, allowedAddresses });
    expect(await send()).toMatchObject({
      status: 'scheduled',
      failureReason: 'credentials_unavailable',
    });
    expect(bench.logs('warn').join()).toContain('destination_blocked');
    const other = await PublisherBench.start({
      endpoints: [
        {
          id: 'public',
          url: 'https://93.184.216.34/',
          profile,
          secret: `whsec_${'A'.repeat(44)}`,
          credentials: {
            oauth2: {
              tokenUrl: 'https://localhost.example.invalid/',
              clientId: 'a',
              clientSecret: 'b',
            },
          },
        },
      ],
    });

    expect(await other.publisher.send('public', 'invoice.paid', ['x'])).toMatchObject({
      failureReason: 'credentials_unavailable',
    });
    expect([...tokens.requests, ...receiver.requests]).toEqual([]);
    await other.stop();
  });

  it('end with the attempt if the token endpoint does not answer', async () => {
    await created(oauth2());
    const held = new Gate();
    tokens.answering = () => held.pass();
    const sending = send();
    await held.reached;
    await bench.clock.advance(15_000);

    expect(await sending).toMatchObject({
      status: 'scheduled',
      failureReason: 'credentials_unavailable',
    });
    held.open();
  });

  it('keep nothing of a token request that has ended', async () => {
    const oauthTokens = bench.module.get(OAuthTokens);
    const request = async (): Promise<string> =>
      oauthTokens.get(oauth2().oauth2!, new AbortController().signal);
    await request();
    const before = collected(oauthTokens);
    for (let index = 0; index < 10; index++) await request();

    expect(tokens.requests).toHaveLength(11);
    expect(collected(oauthTokens)).toBe(before);
  });

  it('report a token request that a shutdown ends as aborted', async () => {
    const held = new Gate();
    tokens.answering = () => held.pass();
    const oauthTokens = bench.module.get(OAuthTokens);
    const requested = oauthTokens.get(oauth2().oauth2!, new AbortController().signal);
    const failed = expect(requested).rejects.toMatchObject({
      reason: 'aborted',
      message: expect.not.stringContaining('in time'),
    });
    await held.reached;
    oauthTokens.close();

    await failed;
    held.open();
  });
});

/** The sizes of all sets and maps that an object holds, at any depth. */
function collected(root: object): number {
  const seen = new Set<unknown>([root]);
  let total = 0;
  for (const item of seen) {
    if (typeof item !== 'object' || item === null) continue;
    for (const key of Reflect.ownKeys(item)) seen.add(Reflect.get(item, key));
    if (item instanceof AbortController) seen.add(item.signal);
    const size: unknown = Reflect.get(item, 'size');
    if (typeof size === 'number') total += size;
  }
  return total;
}

describe('a client certificate', () => {
  const pem = (name: string): string =>
    readFileSync(new URL(`../egress/certificates/${name}.pem`, import.meta.url), 'utf8');
  const certificate = (name: string) => ({
    cert: pem(name),
    key: pem('hooks.test.key'),
    ca: pem('hooks.test.cert'),
  });
  const names: string[] = [];
  const sockets = new Set<unknown>();
  let server: https.Server;

  beforeEach(async () => {
    names.length = 0;
    sockets.clear();
    server = https.createServer({
      cert: pem('hooks.test.cert'),
      key: pem('hooks.test.key'),
      ca: [pem('hooks.test.cert'), pem('other-host.cert')],
      requestCert: true,
      rejectUnauthorized: true,
    });
    server.on('request', (request, response) => {
      names.push(String((request.socket as TLSSocket).getPeerCertificate().subject.CN));
      sockets.add(request.socket);
      request.resume();
      response.writeHead(204).end();
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
  });
  afterEach(async () => {
    server.close();
    server.closeAllConnections();
    await once(server, 'close');
  });
  const url = (): string => `https://127.0.0.1:${(server.address() as AddressInfo).port}/`;

  it('identifies the publisher, and no connection is shared by two identities', async () => {
    await endpoints().create({
      id: 'a',
      url: url(),
      credentials: { certificate: certificate('hooks.test.cert') },
    });
    await endpoints().create({
      id: 'b',
      url: url(),
      credentials: { certificate: certificate('other-host.cert') },
    });
    await endpoints().create({ id: 'none', url: url() });
    for (const id of ['a', 'b', 'a', 'b']) {
      expect(await bench.publisher.send(id, 'invoice.paid', ['x'])).toMatchObject({
        status: 'delivered',
      });
    }

    expect(names).toEqual(['hooks.test', 'other.test', 'hooks.test', 'other.test']);
    expect(sockets.size).toBe(2);
    expect(await bench.publisher.send('none', 'invoice.paid', ['x'])).toMatchObject({
      failureReason: 'tls',
    });
  });

  it.each(['pkcs8', 'sec1'] as const)('is refused if its key is encrypted (%s)', async (type) => {
    const { cert } = certificate('hooks.test.cert');
    const refused = endpoints().create({
      id: 'a',
      url: url(),
      credentials: { certificate: { cert, key: encryptedKey(type) } },
    });

    await expect(refused).rejects.toThrow(
      'credentials.certificate.key: must not be encrypted: decrypt it with "openssl pkcs8", since it is stored encrypted',
    );
  });

  it.each<[string, () => ClientCertificate, string]>([
    [
      'its authority is a path',
      () => ({ ...certificate('hooks.test.cert'), ca: '/etc/ssl/ca.pem' }),
      'ca: cannot be read: pass certificates as PEM',
    ],
    [
      'its key has another type',
      () => certificate('rsa.test.cert'),
      'key: does not belong to the certificate: cert must begin with that of the key',
    ],
    [
      'its key belongs to another certificate',
      () => ({ cert: pem('rsa.test.cert'), key: otherKey() }),
      'key: does not belong to the certificate: cert must begin with that of the key',
    ],
  ])('is refused if %s', async (_, refused, message) => {
    const creating = endpoints().create({
      id: 'a',
      url: url(),
      credentials: { certificate: refused() },
    });

    await expect(creating).rejects.toThrow(`credentials.certificate.${message}`);
  });

  const otherKey = (): string =>
    generateKeyPairSync('rsa', { modulusLength: 2_048 })
      .privateKey.export({ type: 'pkcs8', format: 'pem' })
      .toString();

  it('has no passphrase, since deriving a key from it would stop the process', async () => {
    // 2³¹ − 1 iterations of PBKDF2 instead of 2048, and a shorter salt, so that no length changes.
    const [begin, ...base64] = encryptedKey('pkcs8').trim().split('\n');
    const end = base64.pop();
    const der = Buffer.from(base64.join(''), 'base64').toString('hex');
    const costly = der.replace(/0408(.{12})....02020800/, '0406$102047fffffff');
    const lines = Buffer.from(costly, 'hex')
      .toString('base64')
      .match(/.{1,64}/g)!;
    const { cert } = certificate('hooks.test.cert');
    const refused = endpoints().create({
      id: 'a',
      url: url(),
      credentials: {
        certificate: {
          cert,
          key: [begin, ...lines, end].join('\n'),
          passphrase: 'secret',
        } as ClientCertificate,
      },
    });

    expect(costly).toContain('02047fffffff');
    await expect(refused).rejects.toThrow('credentials.certificate.passphrase: unknown option');
  });

  it('may have an RSA key, but none whose numbers are longer than its modulus', async () => {
    const cert = pem('rsa.test.cert');
    const jwk = createPrivateKey(pem('rsa.test.key')).export({ format: 'jwk' });
    const number = (name: 'd' | 'p' | 'q'): bigint =>
      BigInt(`0x${Buffer.from(jwk[name]!, 'base64url').toString('hex')}`);
    // Exponents that are congruent make the same signature, but each bit takes time.
    const long = number('d') + (((number('p') - 1n) * (number('q') - 1n)) << 20_000n);
    const hex = long.toString(16);
    const bytes = Buffer.from(hex.length % 2 === 0 ? hex : `0${hex}`, 'hex');
    const stretched = createPrivateKey({
      key: { ...jwk, d: bytes.toString('base64url') },
      format: 'jwk',
    });
    const create = async (id: string, key: string) =>
      endpoints().create({ id, url: url(), credentials: { certificate: { cert, key } } });

    await create('rsa', pem('rsa.test.key'));
    await expect(
      create('slow', stretched.export({ type: 'pkcs8', format: 'pem' }).toString()),
    ).rejects.toThrow(
      'credentials.certificate.key: must have numbers that are no longer than its modulus',
    );
  });

  const encryptedKey = (type: 'pkcs8' | 'sec1'): string =>
    createPrivateKey(pem('hooks.test.key'))
      .export({ type, format: 'pem', cipher: 'aes-256-cbc', passphrase: 'secret' })
      .toString();

  it('replaces that of the publisher', async () => {
    await bench.stop();
    bench = await PublisherBench.start({
      tls: { ca: pem('hooks.test.cert'), cert: pem('hooks.test.cert'), key: pem('hooks.test.key') },
      endpoints: [
        {
          id: 'own',
          url: url(),
          credentials: { certificate: { ...certificate('other-host.cert'), ca: undefined } },
        },
        { id: 'shared', url: url() },
      ],
    });
    await bench.publisher.send('own', 'invoice.paid', ['x']);
    await bench.publisher.send('shared', 'invoice.paid', ['x']);

    expect(names).toEqual(['other.test', 'hooks.test']);
    expect((await endpoints().get('own')).credentials).toEqual(['certificate']);
  });
});
