import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Injectable, type INestApplication } from '@nestjs/common';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { IsInt } from 'class-validator';
import { OnWebhookEvent } from 'nestjs-webhook-token';
import { CONFORMANCE_PROFILES } from '../../lib/cli/conformance/probe.interface.js';
import { probesFor, runConformance } from '../../lib/cli/conformance/conformance.runner.js';
import { ProbeContext } from '../../lib/cli/conformance/probe.context.js';
import { hmacSigner } from '../../lib/cli/conformance/probe.signer.js';
import { adapters } from '../fixtures/adapters.js';
import { ISSUER, PATH, receiverOptions, SECRET, startApp } from '../fixtures/receiver-app.js';
import { startNaiveReceiver } from '../fixtures/naive-receiver.js';
import { WeakReceiver, type Weakness } from '../fixtures/weak-receiver.js';
import { conformance, ids, report } from './conformance-run.js';

const AUDIENCE = 'https://crm.example';

describe.each(adapters)('conformance of the receiver on %s', (_, createAdapter) => {
  describe.each(CONFORMANCE_PROFILES)('as %s', (profile) => {
    let app: INestApplication;
    let url: string;

    beforeAll(async () => {
      const options = receiverOptions({
        profiles: [profile],
        audience: AUDIENCE,
      });
      const started = await startApp(createAdapter(), { options });
      ({ app } = started);
      url = `${started.origin}${PATH}`;
    });
    afterAll(() => app.close());

    it('passes every probe', async () => {
      const {
        code,
        report: found,
        stderr,
      } = await report(url, '--audience', AUDIENCE, '--profile', profile);

      expect(found.probes.filter(({ verdict }) => !['pass', 'skipped'].includes(verdict))).toEqual(
        [],
      );
      expect([code, found.end, stderr]).toEqual([0, 'complete', '']);
      expect(Math.abs(found.clockSkewSeconds!)).toBeLessThan(60);
    });

    it('is tested with the first probe and one group only', async () => {
      const { report: found } = await report(
        url,
        '--audience',
        AUDIENCE,
        '--profile',
        profile,
        '--only',
        'replay',
      );

      expect(found.probes[0]!.id).toBe('accepts.plain');
      expect(new Set(found.probes.slice(1).map(({ id }) => id.split('.')[0]))).toEqual(
        new Set(['replay']),
      );
    });
  });
});

class Order {
  @IsInt() total!: number;
}

@Injectable()
class Orders {
  @OnWebhookEvent('order.created')
  on(_order: Order): void {}
}

describe.each(adapters)('a receiver that validates its events, on %s', (_, createAdapter) => {
  let app: INestApplication;
  let url: string;

  beforeAll(async () => {
    const started = await startApp(createAdapter(), { providers: [Orders] });
    ({ app } = started);
    url = `${started.origin}${PATH}`;
  });
  afterAll(() => app.close());

  it('passes with the default event', async () => {
    const { code, report: found } = await report(url);

    expect([code, found.end]).toEqual([0, 'complete']);
  });

  it('is not tested with an event that it validates', async () => {
    const { code, stderr } = await report(url, '--event', 'order.created');

    expect(code).toBe(1);
    expect(stderr).toContain('answered with 422 (invalid_payload)');
    expect(stderr).toContain('pass --event with an event that it accepts and does not validate');
  });
});

describe('probes', () => {
  it.each(CONFORMANCE_PROFILES)('of %s have unique ids that start with their group', (profile) => {
    const probes = probesFor(profile);

    expect(probes[0]?.id).toBe('accepts.plain');
    expect(new Set(probes.map(({ id }) => id)).size).toBe(probes.length);
    for (const { id, group } of probes) expect(id.startsWith(`${group}.`)).toBe(true);
  });
});

describe('the clock of the receiver', () => {
  const SECOND = Date.UTC(2026, 0, 31, 12);

  it.each([
    ['in the same second', 999, SECOND, 0],
    ['in the next second', 999, SECOND + 1_000, 0],
    ['one second behind', 0, SECOND - 1_000, -1],
    ['two seconds behind', 500, SECOND - 2_000, -2],
    ['two seconds ahead', 500, SECOND + 3_000, 2],
  ])('is reported %s, although its header has whole seconds', async (_, ms, date, expected) => {
    const server = createServer((_request, response) => {
      response.writeHead(401, { Date: new Date(date).toUTCString() }).end();
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const context = new ProbeContext({
      profile: 'webhook-token',
      issuer: ISSUER,
      event: 'order.created',
      signer: hmacSigner(SECRET),
      now: () => SECOND + ms,
    });
    const url = new URL(`http://127.0.0.1:${port}/`);
    const { clockSkew } = await runConformance(context, { url, timeout: 20_000 });
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));

    expect(Math.abs(clockSkew! - expected)).toBe(0);
  });
});

/** Probes of these receivers wait for an answer until they time out. */
const UNANSWERED: ReadonlySet<Weakness> = new Set([
  'ignores the issuer',
  'reads the body of a HEAD',
  'reads the body before it checks the token',
]);

/** The musts that fail and the shoulds that warn. */
async function findings(
  url: string,
  timeout = '20s',
): Promise<{ code: number; fails: string[]; warns: string[] }> {
  const { code, report: found } = await report(url, '--timeout', timeout);
  return { code, fails: ids(found, 'fail', 'error'), warns: ids(found, 'warn') };
}

describe('conformance of a receiver with one weakness', () => {
  it('finds nothing without a weakness', async () => {
    const receiver = await WeakReceiver.start();
    try {
      expect(await findings(receiver.url)).toEqual({ code: 0, fails: [], warns: [] });
    } finally {
      await receiver.stop();
    }
  });

  // Several at once, because some only wait: those begin first.
  it.concurrent.each<[Weakness, fails: string[], warns: string[]]>([
    ['reads the body of a HEAD', ['http.head-with-length'], []],
    [
      'reads the body before it checks the token',
      ['http.head-with-length'],
      ['http.large-before-read', 'http.unauthenticated-body'],
    ],
    [
      'ignores the issuer',
      ['token.iss-other'],
      ['http.status-401', 'http.no-store-refused', 'http.unauthenticated-body'],
    ],
    ['accepts alg none', ['token.alg-none', 'token.alg-none-case', 'token.alg-none-signed'], []],
    ['accepts any HMAC algorithm that the token names', ['token.alg-other'], []],
    [
      'does not check typ',
      ['token.typ-other', 'token.typ-missing', 'token.typ-list', 'token.typ-draft'],
      [],
    ],
    [
      'ignores the times',
      ['token.expired', 'token.expired-minutes', 'token.iat-future', 'token.long-lived'],
      [],
    ],
    ['ignores the audience', ['token.aud-other'], []],
    ['does not require a jti', ['token.no-jti'], []],
    ['trusts a key in the header', ['token.jwk'], []],
    [
      'decodes base64 leniently',
      [
        'token.signature-longer',
        'token.padding',
        'token.unused-bits',
        'token.standard-alphabet',
        'token.padded-claims',
        'token.four-parts',
      ],
      [],
    ],
    [
      'accepts a body without a digest',
      ['body.no-hash', 'body.no-hash-data', 'body.draft-stamp-alone'],
      [],
    ],
    ['accepts digests by MD5 and SHA-1', ['body.hash-md5', 'body.hash-sha1'], []],
    ['hashes the re-serialised JSON', ['body.longer', 'body.rewritten', 'body.spaced'], []],
    ['records the id before it checks the body', ['replay.tampered-first'], []],
    [
      'does not recognise copies',
      [],
      ['replay.same-token-seen', 'replay.same-txn-seen', 'replay.same-id-other-content'],
    ],
    [
      'answers every method',
      ['http.method-get', 'http.method-put', 'http.method-patch', 'http.method-delete'],
      ['http.status-405'],
    ],
    ['uses the first of two credentials', ['http.two-headers', 'http.joined-headers'], []],
    ['sends no challenge', ['http.challenge'], ['http.status-405']],
    ['lets caches store answers', [], ['http.no-store', 'http.no-store-refused']],
  ])('finds that it %s', async (weakness, fails, warns) => {
    const receiver = await WeakReceiver.start(weakness);
    try {
      const timeout = UNANSWERED.has(weakness) ? '5s' : '20s';
      expect(await findings(receiver.url, timeout)).toEqual({
        code: fails.length === 0 ? 0 : 1,
        fails,
        warns,
      });
    } finally {
      await receiver.stop();
    }
  });

  it('finds with every body probe that it never checks the digest', async () => {
    const receiver = await WeakReceiver.start('never checks the digest');
    try {
      const { code, fails, warns } = await findings(receiver.url);
      // A hash that is a list is a wrong claim already, before there is a digest to check.
      const bodies = probesFor('webhook-token', 'body').filter(
        ({ group, id }) => group === 'body' && id !== 'body.hash-list',
      );

      expect(code).toBe(1);
      expect([...fails, ...warns].filter((id) => id.startsWith('body.')).sort()).toEqual(
        bodies.map(({ id }) => id).sort(),
      );
    } finally {
      await receiver.stop();
    }
  });

  it('finds that it accepts an unknown kid with the correct signature', async () => {
    const receiver = await WeakReceiver.start();
    try {
      // Its key has no kid, so it matches any.
      const { report: found } = await report(receiver.url, '--kid', 'k1', '--only', 'token');

      expect(ids(found, 'fail')).toEqual(['token.kid-unknown']);
    } finally {
      await receiver.stop();
    }
  });

  it.each([
    [
      'an authority without a certificate',
      ['--insecure-ca', 'package.json'],
      /--insecure-ca must be/,
    ],
    ['a URL with a password', ['http://:not-to-be-shown@127.0.0.1:1/webhooks'], /without a user/],
  ])('refuses %s', async (_, args, message) => {
    const urls = args.length === 1 ? [] : ['http://127.0.0.1:1/webhooks'];
    const { code, stdout, stderr } = await conformance([...urls, ...args, '--issuer', ISSUER]);

    expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
    expect(stdout + stderr).not.toContain('not-to-be-shown');
  });

  it('finds that it redirects instead of refusing', async () => {
    const receiver = await WeakReceiver.start('answers redirects');
    try {
      const { report: found } = await report(receiver.url);

      expect(found.probes.find(({ id }) => id === 'token.expired')).toMatchObject({
        verdict: 'fail',
        detail: 'answered with 302, not 4xx',
      });
    } finally {
      await receiver.stop();
    }
  });
});

describe('conformance of a receiver of another format', () => {
  it('finds what swt-draft-00 has and the default format does not', async () => {
    const receiver = await WeakReceiver.start();
    try {
      const { code, report: found } = await report(receiver.url, '--profile', 'swt-draft-00');

      expect(code).toBe(1);
      expect(ids(found, 'fail')).toEqual(
        expect.arrayContaining([
          'accepts.post-json',
          'accepts.base64-data',
          'accepts.no-hash-alg',
          'accepts.no-typ',
          'token.no-nbf',
          'token.expired-seconds',
        ]),
      );
    } finally {
      await receiver.stop();
    }
  });

  it('stops if a valid event is refused', async () => {
    const receiver = await WeakReceiver.start();
    try {
      const { code, report: found } = await report(receiver.url, '--profile', 'swt-draft-02');

      expect([code, found.end, found.probes.length]).toEqual([1, 'refused', 1]);
    } finally {
      await receiver.stop();
    }
  });
});

describe('conformance of a server that changes the protocol', () => {
  it('ends, because there is no answer', async () => {
    const server = createServer((_request, response) => {
      response.writeHead(101, { connection: 'upgrade', upgrade: 'h2c' }).end();
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const { code, report: found } = await report(`http://127.0.0.1:${port}/`);
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));

    expect([code, found.end]).toEqual([3, 'unreachable']);
  });
});

describe('conformance of a naive receiver', () => {
  it('finds what it does not check', async () => {
    const receiver = await startNaiveReceiver();
    try {
      const { code, fails, warns } = await findings(receiver.url);

      expect(code).toBe(1);
      expect(fails).toEqual(
        expect.arrayContaining([
          'token.alg-none',
          'token.alg-other',
          'token.expired',
          'token.exp-infinite',
          'token.crit',
          'token.typ-other',
          'token.iss-other',
          'token.aud-other',
          'token.no-jti',
          'token.exp-twice',
          'body.other',
          'body.no-hash',
          'http.method-get',
        ]),
      );
      expect(warns).toEqual(expect.arrayContaining(['http.head-status', 'http.no-store']));
      // It does check signatures.
      expect(fails).not.toContain('token.secret-other');
      expect(fails).not.toContain('token.claims-changed');
    } finally {
      await receiver.stop();
    }
  });
});
