import { createPrivateKey, generateKeyPairSync, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { rootCertificates } from 'node:tls';
import { describe, expect, it } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import { InProcessQueue } from 'nestjs-webhook-token';
import type { WebhookPublisherOptions } from '../../lib/publisher/publisher-options.js';
import { resolvePublisherOptions } from '../../lib/publisher/publisher-options.resolver.js';

const secret = 'a secret of the test that is long enough';
const weak = 'too-short-to-be-safe';
const good = { issuer: 'https://billing.example', secret };
const pem = (name: string): string =>
  readFileSync(new URL(`../egress/certificates/${name}.pem`, import.meta.url), 'utf8');
const crm = { id: 'crm', url: 'https://crm.example/webhooks' };

describe('resolvePublisherOptions', () => {
  it('fills in the defaults', () => {
    const { resolved, problems } = resolve({ ...good, endpoints: [crm] });

    expect(problems).toEqual([]);
    expect(resolved).toMatchObject({
      maxHeadBytes: 7_168,
      shutdownTimeout: 10_000,
      defaults: {
        profile: 'webhook-token',
        method: 'auto',
        timeout: 15_000,
        jti: 'attempt',
        retry: { attempts: 10, jitter: 0.2 },
        headers: {},
      },
      endpoints: [
        { ...crm, events: ['**'], disabled: false, profile: 'webhook-token', timeout: 15_000 },
      ],
    });
    expect(resolved!.queue).toBeInstanceOf(InProcessQueue);
    expect(resolved!.endpoints[0]!.signer).toBe(resolved!.defaults.signer);
  });

  it('lets an endpoint override settings of the publisher', () => {
    const { resolved } = resolve({
      ...good,
      timeout: '3s',
      hash: 'sha512',
      method: 'POST',
      endpoints: [
        { ...crm, secret: `${secret}, too`, timeout: '1s', audience: 'https://crm.example' },
        { ...crm, id: 'erp', hash: 'sha3-256', method: 'auto', subject: 'erp', tenant: 'a' },
      ],
    });

    expect(resolved!.endpoints).toMatchObject([
      { timeout: 1_000, hash: 'sha512', method: 'POST', audience: 'https://crm.example' },
      { timeout: 3_000, hash: 'sha3-256', method: 'auto', subject: 'erp', tenant: 'a' },
    ]);
    expect(resolved!.endpoints[0]!.signer).not.toBe(resolved!.defaults.signer);
  });

  it('takes certificates and keys in every form of node:tls', () => {
    const [cert, key] = [pem('hooks.test.cert'), pem('hooks.test.key')];
    const cipher = { cipher: 'aes-256-cbc', passphrase: 'secret' };
    const encrypted = createPrivateKey(key)
      .export({ type: 'pkcs8', format: 'pem', ...cipher })
      .toString();
    const forms: WebhookPublisherOptions['tls'][] = [
      { ca: [...rootCertificates, Buffer.from(cert)] },
      { ca: `${cert}\n${pem('rsa.test.cert')}` },
      { cert: Buffer.from(cert), key: Buffer.from(key) },
      { cert: `${cert}\n${pem('rsa.test.cert')}`, key },
      { cert: [cert, pem('rsa.test.cert')], key: [pem('rsa.test.key'), key] },
      { cert, key: encrypted, passphrase: 'secret' },
      { cert, key: [{ pem: encrypted, passphrase: 'secret' }] },
    ];

    expect(forms.map((tls) => problemsOf({ ...good, tls }))).toEqual(forms.map(() => []));
  });

  it('uses the configured queue, also in production', () => {
    const queue = new InProcessQueue();

    expect(resolve({ ...good, queue }, true).resolved!.queue).toBe(queue);
  });

  it.each<[string, WebhookPublisherOptions | object, string, RegExp]>([
    ['no issuer', { secret }, 'publisher.issuer', /is undefined; is the environment variable set/],
    [
      'no secret',
      { issuer: 'us' },
      'publisher.secret',
      /secret is missing.*even if every endpoint has its own/,
    ],
    ['a weak secret', { ...good, secret: weak }, 'publisher.secret', /at least 32/],
    ['a weak key', { ...good, secret: undefined, key: { key: weak } }, 'publisher.key', /32/],
    ['an invalid lifetime', { ...good, tokenLifetime: 0 }, 'publisher.tokenLifetime', /second/],
    ['an unknown hash', { ...good, hash: 'md5' }, 'publisher.hash', /sha3-512/],
    ['an unknown method', { ...good, method: 'PUT' }, 'publisher.method', /'HEAD'/],
    ['an invalid timeout', { ...good, timeout: 'soon' }, 'publisher.timeout', /'15s'/],
    ['a timeout of 0', { ...good, timeout: 0 }, 'publisher.timeout', /positive/],
    ['a timeout of hours', { ...good, timeout: '16m' }, 'publisher.timeout', /at most '15m'/],
    ['an invalid port', { ...good, allowedPorts: [0] }, 'publisher.allowedPorts[0]', /65535/],
    ['ports that are not a list', { ...good, allowedPorts: 25 }, 'publisher.allowedPorts', /list/],
    [
      'a maximum head size of 0',
      { ...good, maxHeadBytes: 0 },
      'publisher.maxHeadBytes',
      /positive/,
    ],
    [
      'an infinite shutdown timeout',
      { ...good, shutdownTimeout: '-1s' },
      'publisher.shutdownTimeout',
      /positive/,
    ],
    ['zero attempts', { ...good, retry: { attempts: 0 } }, 'publisher.retry.attempts', /1 to/],
    ['too much jitter', { ...good, retry: { jitter: 2 } }, 'publisher.retry.jitter', /0 to 1/],
    [
      'an invalid predicate',
      { ...good, retry: { retryIf: true } },
      'publisher.retry.retryIf',
      /function/,
    ],
    [
      'an empty schedule',
      { ...good, retry: { schedule: [] } },
      'publisher.retry.schedule',
      /list of/,
    ],
    [
      'a bad schedule',
      { ...good, retry: { schedule: ['0s', 'x'] } },
      'publisher.retry.schedule[1]',
      /duration/,
    ],
    [
      'a schedule of years',
      { ...good, retry: { schedule: ['0s', '30d', '31d'] } },
      'publisher.retry.schedule[2]',
      /at most '30d'/,
    ],
    [
      'a malformed network',
      { ...good, allowedAddresses: ['10.0.0.0/99'] },
      'publisher.allowedAddresses[0]',
      /./,
    ],
    [
      'an invalid certificate',
      { ...good, tls: { cert: 'nonsense', key: 'nonsense' } },
      'publisher.tls',
      /PEM/,
    ],
    [
      'an authority that is a path',
      { ...good, tls: { ca: '/etc/ssl/ca.pem' } },
      'publisher.tls.ca',
      /PEM/,
    ],
    [
      'an authority in DER, which Node ignores',
      { ...good, tls: { ca: [new X509Certificate(pem('hooks.test.cert')).raw] } },
      'publisher.tls.ca',
      /PEM/,
    ],
    [
      'a certificate without a key',
      { ...good, tls: { cert: pem('hooks.test.cert') } },
      'publisher.tls.key',
      /is missing: a client certificate needs cert and key/,
    ],
    [
      'a key without a certificate',
      { ...good, tls: { key: pem('hooks.test.key') } },
      'publisher.tls.cert',
      /is missing: a client certificate needs cert and key/,
    ],
    [
      'a key of another type than that of the certificate',
      { ...good, tls: { cert: pem('rsa.test.cert'), key: pem('hooks.test.key') } },
      'publisher.tls.key',
      /does not belong to the certificate/,
    ],
    [
      'a certificate of which a list has no key',
      {
        ...good,
        tls: { cert: [pem('hooks.test.cert'), pem('rsa.test.cert')], key: [pem('hooks.test.key')] },
      },
      'publisher.tls.key',
      /does not belong to the certificate/,
    ],
    ['an invalid queue', { ...good, queue: {} }, 'publisher.queue', /WebhookQueue/],
    ['endpoints that are not a list', { ...good, endpoints: crm }, 'publisher.endpoints', /list/],
    ['an invalid endpoint', { ...good, endpoints: [null] }, 'publisher.endpoints[0]', /object/],
  ])('reports %s', (_, options, path, message) => {
    expect(problemsOf(options)).toEqual([{ path, message: expect.stringMatching(message) }]);
  });

  it.each<[string, object, string, RegExp]>([
    ['no id', { id: '' }, 'id', /id/],
    ['an id that browsers drop from paths', { id: '.' }, 'id', /not "\." or "\.\."/],
    ['plain http', { url: 'http://crm.example/' }, 'url', /./],
    ['a timeout of years', { timeout: 1e12 }, 'timeout', /at most '15m'/],
    ['a port of another protocol', { url: 'https://crm.example:25/' }, 'url', /allowedPorts/],
    ['a private address', { url: 'https://10.0.0.1/' }, 'url', /./],
    ['no URL', { url: undefined }, 'url', /./],
    ['a password in the URL', { url: 'https://me:hunter2@crm.example/' }, 'url', /./],
    ['no event', { events: [] }, 'events', /every event/],
    ['an invalid pattern', { events: ['order.created', 'order.**x'] }, 'events[1]', /segment/],
    ['a lone asterisk', { events: ['*'] }, 'events[0]', /"\*\*"/],
    ['a weak secret', { secret: weak }, 'secret', /at least 32/],
    ['an invalid issuer', { issuer: '' }, 'issuer', /issuer/],
    ['an invalid audience', { audience: [] }, 'audience', /list/],
    ['an invalid subject', { subject: '' }, 'subject', /subject/],
    ['an invalid tenant', { tenant: '' }, 'tenant', /tenant/],
    ['a tenant that browsers drop from paths', { tenant: '..' }, 'tenant', /not "\." or "\.\."/],
    ['an invalid jti', { jti: 'never' }, 'jti', /'attempt'/],
    ['an invalid timeout', { timeout: 'x' }, 'timeout', /'15s'/],
    ...[
      'Content-Length',
      'transfer-encoding',
      'AUTHORIZATION',
      'Host',
      'Connection',
      'Expect',
      'Content-Type',
      'Content-Encoding',
      'Upgrade',
      'Trailer',
      'TE',
      'Proxy-Connection',
      'Keep-Alive',
      'Proxy-Authorization',
    ].map((name): [string, object, string, RegExp] => [
      `the header ${name}`,
      { headers: { [name]: '1' } },
      `headers["${name}"]`,
      /remove it/,
    ]),
    ['an invalid header name', { headers: { 'X Y': '1' } }, 'headers["X Y"]', /name/],
    ['a header with a line break', { headers: { 'X-Y': 'a\r\nB: c' } }, 'headers["X-Y"]', /carry/],
  ])('reports an endpoint with %s', (_, change, path, message) => {
    expect(problemsOf({ ...good, endpoints: [{ ...crm, ...change }] })).toEqual([
      {
        path: `publisher.endpoints[0].${path}`,
        message: expect.stringMatching(message),
      },
    ]);
  });

  it.each<[object, string]>([
    [{ isuer: 'us' }, 'publisher.isuer: unknown option; did you mean "issuer"?'],
    [
      { retry: { atempts: 3 } },
      'publisher.retry.atempts: unknown option; did you mean "attempts"?',
    ],
    [
      { endpoints: [{ ...crm, evnts: ['order.*'] }] },
      'publisher.endpoints[0].evnts: unknown option; did you mean "events"?',
    ],
    [
      { endpoints: [{ ...crm, audiance: 'a' }] },
      'publisher.endpoints[0].audiance: unknown option; did you mean "audience"?',
    ],
    [
      { tls: { rejectUnauthorized: false } },
      'publisher.tls.rejectUnauthorized: unknown option; remove it, or use one of ca, cert, key, pfx, passphrase',
    ],
    [{ jwks: { maxage: '5m' } }, 'publisher.jwks.maxage: unknown option; did you mean "maxAge"?'],
    [
      { sealingKeys: [{ id: '1', key: Buffer.alloc(32, 7).toString('base64'), kid: 'x' }] },
      'publisher.sealingKeys[0].kid: unknown option; did you mean "id"?',
    ],
  ])('reports the misspelt option in %j', (options, problem) => {
    const key = { alg: 'EdDSA', kid: 'a', key: generateKeyPairSync('ed25519').privateKey };
    const problems = problemsOf({ issuer: 'us', key, ...options });

    expect(problems.map(({ path, message }) => `${path}: ${message}`)).toEqual([problem]);
  });

  it('names the endpoint whose URL is refused', () => {
    const endpoint = { ...crm, url: 'http://crm.example/webhooks' };

    expect(problemsOf({ ...good, endpoints: [endpoint] })).toEqual([
      {
        path: 'publisher.endpoints[0].url',
        message: expect.stringMatching(/^endpoint "crm": .*allowHttp/),
      },
    ]);
  });

  it('refuses two endpoints with the same id', () => {
    expect(problemsOf({ ...good, endpoints: [crm, crm] })).toEqual([
      { path: 'publisher.endpoints[1].id', message: expect.stringContaining('unique') },
    ]);
  });

  it('requires a queue in production', () => {
    expect(resolve(good, true).problems).toEqual([
      {
        path: 'publisher.queue',
        message: expect.stringContaining('new InProcessQueue()'),
      },
    ]);
  });

  it('lists all errors at once, each with its path, and no secret', () => {
    const problems = problemsOf({
      issuer: '',
      secret: weak,
      retry: { attempts: -1 },
      endpoints: [
        { ...crm, issuer: 'own' },
        { ...crm, id: 'erp', secret: weak, events: ['*'] },
      ],
    });

    expect(problems.map(({ path }) => path).sort()).toEqual([
      'publisher.endpoints[1].events[0]',
      'publisher.endpoints[1].secret',
      'publisher.issuer',
      'publisher.retry.attempts',
      'publisher.secret',
    ]);
    expect(JSON.stringify(problems)).not.toContain(weak);
  });
});

function resolve(options: WebhookPublisherOptions, production = false) {
  return resolvePublisherOptions(options, { clock: new TestClock(), production });
}

function problemsOf(options: object) {
  return resolve(options as WebhookPublisherOptions).problems;
}
