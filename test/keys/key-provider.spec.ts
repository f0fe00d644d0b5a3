import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { PassThrough } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import { signWebhook, TestClock } from 'nestjs-webhook-token/testing';
import {
  KeyProvider,
  OnWebhookEvent,
  WebhookVerifier,
  type Duration,
  type WebhookIssuer,
} from 'nestjs-webhook-token';
import { createFastify } from '../fixtures/adapters.js';
import { Gate } from '../fixtures/gate.js';
import { head } from '../fixtures/http-client.js';
import { JWKS_CA, JwksServer } from '../fixtures/jwks-server.js';
import {
  ISSUER,
  receiverOptions,
  SECRET,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

const OTHER = 'https://other.example';
const NEXT = 'the-next-secret-of-this-test-alone';
const MINUTE = 60_000;

type Issuers = readonly WebhookIssuer[];

/** A provider whose list the test can change. */
class TestIssuers extends KeyProvider<Issuers> {
  override readonly ttl: Duration = '1m';
  override readonly maxStale: Duration = '1h';
  loads = 0;
  rows: () => Issuers | Promise<Issuers> = () => [{ issuer: ISSUER, secret: SECRET }];

  override load(): Issuers | Promise<Issuers> {
    this.loads++;
    return this.rows();
  }

  holds(...rows: readonly WebhookIssuer[]): void {
    this.rows = () => rows;
  }

  fails(): void {
    this.rows = () => {
      throw Object.assign(new Error('postgres://user:hunter2@db is away'), {
        code: 'ECONNREFUSED',
      });
    };
  }
}

@Injectable()
class Orders {
  @OnWebhookEvent('**')
  onAny(): void {}
}

describe('a provider of issuers', () => {
  let clock: TestClock;
  let issuers: TestIssuers;
  let started: StartedApp | undefined;

  beforeEach(() => {
    clock = new TestClock();
    issuers = new TestIssuers();
  });
  afterEach(async () => {
    await started?.app.close();
    started = undefined;
  });

  async function start(change: Parameters<typeof receiverOptions>[0] = {}): Promise<StartedApp> {
    const options = { ...receiverOptions({ issuers, ...change }), clock };
    started = await startApp(createFastify(), { options, providers: [Orders] });
    return started;
  }

  async function outcome(secret = SECRET, issuer = ISSUER, event = 'order.created') {
    const { token } = await signWebhook(event, undefined, { issuer, secret, clock });
    const { status, headers } = await head(started!.origin, token);
    return [status, headers['webhook-error'] ?? []].flat().join(' ');
  }

  it('is loaded once, before the application listens', async () => {
    await start();

    expect(issuers.loads).toBe(1);
    expect(await outcome()).toBe('204');
    expect(issuers.loads).toBe(1);
  });

  it('fails start-up if it rejects, without its message', async () => {
    issuers.fails();

    const failure = await start().catch((error: Error) => error);

    expect((failure as Error).message).toMatch(
      /receiver "default"\.issuers: the KeyProvider could not load them \(Error \(ECONNREFUSED\)\)/,
    );
    expect((failure as Error).message).not.toContain('hunter2');
  });

  it('fails start-up if it does not settle', async () => {
    const gate = new Gate();
    issuers.rows = async () => {
      await gate.pass();
      return [];
    };
    const failing = expect(start()).rejects.toThrow(/did not settle within 10000 ms/);
    await gate.reached;
    await clock.advance(10_000);

    await failing;
    expect(clock.waiting).toBe(0);
  });

  it('fails start-up with every error of its list', async () => {
    issuers.holds(
      { issuer: ISSUER, secret: 'too-short' },
      { issuer: ISSUER, secret: SECRET },
      { issuer: OTHER, secret: SECRET, events: ['order created'] },
    );

    const failure = (await start().catch((error: Error) => error)) as Error;

    expect(failure.message).toContain(
      'receiver "default".issuers[0].secret: the secret has 9 bytes',
    );
    expect(failure.message).toContain(
      'receiver "default".issuers[1].issuer: "https://shop.example" is listed twice',
    );
    expect(failure.message).toContain('receiver "default".issuers[2].events[0]');
    expect(failure.message).not.toContain('too-short');
  });

  it.each<[string, unknown, RegExp]>([
    [
      'something other than a list',
      undefined,
      /issuers: load\(\) of the KeyProvider must return a list/,
    ],
    ['a list of strings', [ISSUER], /issuers\[0\]: must be an object/],
    [
      'a misspelt member',
      [{ issuer: ISSUER, secrets: [] }],
      /issuers\[0\]\.secrets: unknown option/,
    ],
    ['null as a secret', [{ issuer: ISSUER, secret: null }], /issuers\[0\]\.secret: .* is null/],
  ])('fails start-up if it returns %s', async (_what, rows, problem) => {
    issuers.rows = () => rows as Issuers;

    await expect(start()).rejects.toThrow(problem);
  });

  it('is loaded again in the background first, and awaited later', async () => {
    await start();
    issuers.holds({ issuer: ISSUER, secret: NEXT });

    await clock.advance(MINUTE);
    expect(await outcome(NEXT)).toBe('401 bad_signature');
    expect(issuers.loads).toBe(1);
    await clock.advance(1);
    // Older than its ttl: this request uses the last keys, the next one the new keys.
    expect(await outcome(SECRET)).toBe('204');
    expect(await outcome(NEXT)).toBe('204');
    expect(await outcome(SECRET)).toBe('401 bad_signature');
    expect(issuers.loads).toBe(2);

    issuers.holds({ issuer: ISSUER, secret: SECRET });
    await clock.advance(2 * MINUTE + 1);
    // Older than twice its ttl: requests wait.
    expect(await outcome(NEXT)).toBe('401 bad_signature');
    expect(issuers.loads).toBe(3);
  });

  it('is loaded once for concurrent requests', async () => {
    await start();
    const gate = new Gate();
    issuers.rows = async () => {
      await gate.pass();
      return [{ issuer: ISSUER, secret: NEXT }];
    };
    await clock.advance(2 * MINUTE + 1);

    const waiting = Promise.all(Array.from({ length: 10 }, () => outcome(NEXT)));
    await gate.reached;
    gate.open();

    expect(await waiting).toEqual(Array(10).fill('204'));
    expect(issuers.loads).toBe(2);
  });

  it('revokes a key immediately with refresh()', async () => {
    await start();
    issuers.holds({ issuer: OTHER, secret: NEXT });

    await issuers.refresh();

    expect(await outcome(SECRET)).toMatch(/^401/);
    expect(await outcome(NEXT, OTHER)).toBe('204');
    expect(issuers.loads).toBe(2);
  });

  it('revokes its last issuer with an empty list, which is logged once', async () => {
    await start();
    issuers.holds();

    await issuers.refresh();
    await issuers.refresh();

    expect(await outcome()).toBe('401 wrong_issuer');
    expect(started!.logger.at('error')).toEqual([]);
    expect(started!.logger.at('warn').filter((line) => line.includes('empty list'))).toEqual([
      expect.stringContaining('The KeyProvider of receiver "default" returned an empty list'),
    ]);
  });

  it('may start with an empty list, and add issuers later', async () => {
    issuers.holds();
    await start();

    expect(await outcome()).toBe('401 wrong_issuer');
    issuers.holds({ issuer: ISSUER, secret: SECRET });
    await issuers.refresh();
    expect(await outcome()).toBe('204');
  });

  it('revokes a key also for a request whose body is still arriving', async () => {
    const { app } = await start();
    const { headers, body } = await signWebhook('order.created', ['a', 'list'], {
      issuer: ISSUER,
      secret: SECRET,
      method: 'POST',
      clock,
    });
    const stream = new PassThrough();
    stream.write(body!.subarray(0, 3));
    const verified = app.get(WebhookVerifier).verify({ method: 'POST', headers, body: stream });
    const refusal = expect(verified).rejects.toMatchObject({ code: 'bad_signature' });
    issuers.holds({ issuer: ISSUER, secret: NEXT });
    await issuers.refresh();
    stream.end(body!.subarray(3));

    await refusal;
  });

  it('ignores an older load that ends after a refresh', async () => {
    await start();
    const gate = new Gate();
    const old = [{ issuer: ISSUER, secret: SECRET }];
    issuers.rows = async () => {
      await gate.pass();
      return old;
    };
    await clock.advance(MINUTE + 1);
    expect(await outcome()).toBe('204');
    await gate.reached;

    issuers.holds({ issuer: ISSUER, secret: NEXT });
    await issuers.refresh();
    gate.open();
    await setImmediate();

    expect(await outcome(SECRET)).toBe('401 bad_signature');
    expect(await outcome(NEXT)).toBe('204');
  });

  it('does not restore a key that was revoked while a load failed', async () => {
    await start();
    const gate = new Gate();
    issuers.rows = async () => {
      await gate.pass();
      throw new Error('the database is away');
    };
    await clock.advance(2 * MINUTE + 1);
    const waiting = outcome(SECRET);
    await gate.reached;

    issuers.holds({ issuer: ISSUER, secret: NEXT });
    await issuers.refresh();
    gate.open();

    expect(await waiting).toBe('401 bad_signature');
  });

  it('reports a failed refresh to its caller and keeps the last keys', async () => {
    await start();
    issuers.fails();
    await expect(issuers.refresh()).rejects.toThrow('is away');
    issuers.holds({ issuer: ISSUER, secret: 'too-short' });
    await expect(issuers.refresh()).rejects.toMatchObject({
      code: 'invalid_configuration',
      problems: [{ path: 'issuers[0].secret' }],
    });

    expect(await outcome()).toBe('204');
  });

  it('is logged once while it fails, and its last keys are used up to maxStale', async () => {
    await start();
    issuers.fails();

    for (let minute = 0; minute < 60; minute += 5) {
      await clock.advance(5 * MINUTE);
      expect(await outcome()).toBe('204');
    }
    expect(started!.logger.at('error')).toEqual([
      expect.stringMatching(/The issuers of receiver "default" cannot be refreshed.*ECONNREFUSED/),
    ]);
    await clock.advance(5 * MINUTE);
    expect(await outcome()).toBe('503 keys_unavailable');

    issuers.holds({ issuer: ISSUER, secret: SECRET });
    await clock.advance(5_000);
    expect(await outcome()).toBe('204');
    expect(started!.logger.at('log').join()).toContain('are refreshed again');
    expect(started!.logger.lines.join()).not.toContain('hunter2');
  });

  it('is not loaded for every request while it fails', async () => {
    await start();
    issuers.fails();
    await clock.advance(10 * MINUTE);

    for (let i = 0; i < 10; i++) await outcome();
    expect(issuers.loads).toBe(2);
    await clock.advance(5_000);
    await outcome();
    expect(issuers.loads).toBe(3);
  });

  it('is asked before the next request if its last load failed long ago', async () => {
    await start();
    issuers.fails();
    await clock.advance(3 * MINUTE);
    expect(await outcome()).toBe('204');
    issuers.holds({ issuer: ISSUER, secret: NEXT });
    await clock.advance(30 * MINUTE);

    expect(await outcome()).toBe('401 bad_signature');
    expect(await outcome(NEXT)).toBe('204');
  });

  it('delays no request while it hangs, once a load has timed out', async () => {
    await start();
    const hangs = (): Gate => {
      const gate = new Gate();
      issuers.rows = async () => {
        await gate.pass();
        return [{ issuer: ISSUER, secret: NEXT }];
      };
      return gate;
    };
    const first = hangs();
    await clock.advance(10 * MINUTE);
    const waiting = outcome();
    await first.reached;
    await clock.advance(10_000);
    expect(await waiting).toBe('204');

    const second = hangs();
    await clock.advance(5_000);
    expect(await outcome()).toBe('204');
    await second.reached;
    expect(await outcome()).toBe('204');
    second.open();
    await setImmediate();
    expect(await outcome(SECRET)).toBe('401 bad_signature');
    expect(await outcome(NEXT)).toBe('204');
    expect(issuers.loads).toBe(3);
  });

  it('keeps the last list if the new one is invalid, and logs that once', async () => {
    await start();
    issuers.holds({ issuer: ISSUER, secret: 'too-short' });

    for (let i = 0; i < 3; i++) {
      await clock.advance(5 * MINUTE);
      expect(await outcome()).toBe('204');
    }
    const errors = started!.logger.at('error');
    expect(errors).toEqual([expect.stringContaining('issuers[0].secret: the secret has 9 bytes')]);
    expect(errors.join()).not.toContain('too-short');
  });

  it('limits the events of each issuer by the current list', async () => {
    issuers.holds(
      { issuer: ISSUER, secret: SECRET, events: ['order.*'] },
      { issuer: OTHER, secret: NEXT },
    );
    await start();

    expect(await outcome(SECRET, ISSUER, 'payout.made')).toBe('403 event_forbidden');
    expect(await outcome(NEXT, OTHER, 'payout.made')).toBe('204');
    issuers.holds(
      { issuer: ISSUER, secret: SECRET },
      { issuer: OTHER, secret: NEXT, events: ['order.*'] },
    );
    await issuers.refresh();
    expect(await outcome(SECRET, ISSUER, 'payout.made')).toBe('204');
    expect(await outcome(NEXT, OTHER, 'payout.made')).toBe('403 event_forbidden');
  });

  it('logs a warning about an issuer whose keys have all expired', async () => {
    const ended = { issuer: OTHER, keys: [{ key: NEXT, notAfter: '2025-12-31' }] };
    issuers.holds({ issuer: ISSUER, secret: SECRET }, ended);
    await start();
    await issuers.refresh();

    const warned = started!.logger.at('warn').filter((line) => line.includes('notAfter'));
    expect(warned).toEqual([expect.stringContaining(`Every key of the issuer "${OTHER}" is past`)]);
  });

  it('keeps fetched key sets when the list changes', async () => {
    const server = await JwksServer.start();
    issuers.holds({ issuer: ISSUER, jwksUri: server.uri });
    await start({ jwksFetch: { allowPrivateNetworks: true, ca: JWKS_CA } });

    expect(await outcome()).toBe('401 unknown_key');
    await issuers.refresh();
    expect(await outcome()).toBe('401 unknown_key');
    expect(server.hits).toBe(1);
    issuers.holds({ issuer: OTHER, jwksUri: server.uri.replace('keys', 'others') });
    await issuers.refresh();
    expect(await outcome(SECRET, OTHER)).toBe('401 unknown_key');
    expect(server.hits).toBe(2);
    await server.close();
  });
});

describe('a provider', () => {
  it.each<[string, object, RegExp]>([
    ['an invalid ttl', { ttl: 'often' }, /receiver\.issuers\.ttl: must be a positive duration/],
    ['a maxStale below its ttl', { maxStale: '30s' }, /receiver\.issuers\.maxStale: must be at l/],
  ])('is refused with %s', async (_, change, problem) => {
    const issuers = Object.assign(new TestIssuers(), change);

    await expect(
      startApp(createFastify(), { options: receiverOptions({ issuers }) }),
    ).rejects.toThrow(problem);
  });

  it('may have a maxStale that is its ttl', async () => {
    const issuers = Object.assign(new TestIssuers(), { ttl: '1h', maxStale: '1h' });
    const { app } = await startApp(createFastify(), { options: receiverOptions({ issuers }) });

    await app.close();
  });

  it('must be an instance of the class, so that it can be refreshed', async () => {
    const issuers = { load: () => [], ttl: 1 } as unknown as TestIssuers;

    await expect(
      startApp(createFastify(), { options: receiverOptions({ issuers }) }),
    ).rejects.toThrow(/receiver\.issuers: .* extends KeyProvider/);
  });

  it('refreshes every receiver that uses it', async () => {
    const issuers = new TestIssuers();
    const { app } = await startApp(createFastify(), {
      options: {
        receiver: ['one', 'two'].map((name) => ({ name, path: name, issuers })),
      },
      providers: [Orders],
    });
    const verifier = app.get(WebhookVerifier);
    const verify = async (secret: string, receiver: string): Promise<string> => {
      const signed = await signWebhook('order.created', undefined, { issuer: ISSUER, secret });
      return verifier.verify(signed, { receiver }).then(
        () => 'accepted',
        ({ code }: { code: string }) => code,
      );
    };

    expect(issuers.loads).toBe(2);
    issuers.holds({ issuer: ISSUER, secret: NEXT });
    await issuers.refresh();
    for (const receiver of ['one', 'two']) {
      expect(await verify(SECRET, receiver)).toBe('bad_signature');
      expect(await verify(NEXT, receiver)).toBe('accepted');
    }
    await app.close();
  });
});
