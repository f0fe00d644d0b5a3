import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { createHash, randomBytes } from 'node:crypto';
import { once, type EventEmitter } from 'node:events';
import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { spawnSync } from 'node:child_process';
import { request as httpRequest } from 'node:http';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Readable, Writable } from 'node:stream';
import { Body, Controller, Injectable, Post, UseGuards } from '@nestjs/common';
import { decodeJwt } from 'jose';
import {
  OnWebhookEvent,
  WebhookContext,
  WebhookRoute,
  type WebhookEvent,
  WebhookGuard,
  WebhookVerifier,
  MemoryReplayStore,
} from 'nestjs-webhook-token';
import { TestClock } from 'nestjs-webhook-token/testing';
import { createTokenSigner, digest } from 'nestjs-webhook-token/token';
import { adapters } from '../fixtures/adapters.js';
import { Gate } from '../fixtures/gate.js';
import { post, send } from '../fixtures/http-client.js';
import {
  ISSUER,
  receiverOptions,
  SECRET,
  signedBody,
  startApp,
  type StartedApp,
  type StartOptions,
} from '../fixtures/receiver-app.js';

const MIB = 1024 * 1024;
const sha256 = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex');
const large = randomBytes(3 * MIB);
const csv = { headers: { 'content-type': 'text/csv' } };

async function hashOf(stream: Readable): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of stream as AsyncIterable<Buffer>) hash.update(chunk);
  return hash.digest('hex');
}

/** Records what the handlers received, and sets their behaviour. */
class Seen {
  readonly results: unknown[] = [];
  gate: Gate | undefined;
  handle: (event: WebhookEvent) => unknown = (event) => hashOf(event.stream());

  async take(event: WebhookEvent): Promise<void> {
    await this.gate?.pass();
    this.results.push(await this.handle(event));
  }
}

let seen = new Seen();

@Injectable()
class Handlers {
  @OnWebhookEvent('report.*')
  onReport(@WebhookContext() event: WebhookEvent): Promise<void> {
    return seen.take(event);
  }
}

@Controller()
class Routes {
  @WebhookRoute('endpoint')
  onEndpoint(@WebhookContext() event: WebhookEvent): Promise<void> {
    return seen.take(event);
  }

  @Post('guarded')
  @UseGuards(WebhookGuard)
  onGuarded(@Body() body: Buffer): string {
    seen.results.push(sha256(body));
    return '';
  }
}

const report = (body: Buffer | string, input: object = {}): { token: string; body: Buffer } =>
  signedBody(body, { event: 'report.ready', ...input });

describe.each(adapters)('a large body on %s', (_, createAdapter) => {
  let directory: string;
  let started: StartedApp[] = [];

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'spool-test-'));
  });

  afterEach(async () => {
    seen.gate?.open();
    for (const { app } of started) await app.close();
    started = [];
    seen = new Seen();
    const left = await readdir(directory);
    for (const name of left) await rm(join(directory, name));
    expect(left).toEqual([]);
  });

  afterAll(() => rm(directory, { recursive: true }));

  async function start(
    spool: NonNullable<Parameters<typeof receiverOptions>[0]>['spool'] = {},
    more: Partial<Parameters<typeof receiverOptions>[0]> &
      Pick<StartOptions, 'controllers'> & { readonly clock?: TestClock } = {},
  ): Promise<StartedApp> {
    const { controllers = [Routes], clock, ...receiver } = more;
    const options = {
      ...receiverOptions({
        spool: spool === false ? false : { directory, ...spool },
        maxBodyBytes: spool === false ? undefined : spool.maxBytes,
        ...receiver,
      }),
      clock,
    };
    const app = await startApp(createAdapter(), { options, providers: [Handlers], controllers });
    started.push(app);
    return app;
  }

  it.each(['/webhooks', '/endpoint'])('reaches the handler of %s as a stream', async (path) => {
    const { origin } = await start();

    expect((await post(origin, report(large), { ...csv, path })).status).toBe(204);
    expect(seen.results).toEqual([sha256(large)]);
  });

  it.each<[string, (event: WebhookEvent) => unknown]>([
    ['data', (event) => sha256(event.data as Buffer)],
    ['rawBody()', async (event) => sha256(await event.rawBody())],
    [
      'stream(), twice at once',
      async (event) => {
        const [one, other] = await Promise.all([hashOf(event.stream()), hashOf(event.stream())]);
        return one === other ? one : 'different';
      },
    ],
  ])('is read by %s', async (_, handle) => {
    const { origin } = await start();
    seen.handle = handle;

    expect((await post(origin, report(large), csv)).status).toBe(204);
    expect(seen.results).toEqual([sha256(large)]);
  });

  it('is available on a guarded route', async () => {
    const { origin } = await start();

    expect((await post(origin, report(large), { ...csv, path: '/guarded' })).status).toBe(201);
    expect(seen.results).toEqual([sha256(large)]);
  });

  it('is parsed if it is JSON, and then takes no space of the spool', async () => {
    const { origin } = await start({ maxBytes: 2 * MIB });
    const rows = Array.from({ length: 30_000 }, (_, id) => ({ id, name: `row ${id} …` }));
    seen.handle = (event) => (event.data as { rows: unknown[] }).rows.length;

    expect((await post(origin, report(JSON.stringify({ rows })))).status).toBe(204);
    expect((await post(origin, report(JSON.stringify({ rows })))).status).toBe(204);
    expect(seen.results).toEqual([30_000, 30_000]);
  });

  it('can be sent in chunks', async () => {
    const { origin } = await start();
    const { token, body } = report(large);
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'text/csv' };
    const request = httpRequest(`${origin}/webhooks`, { method: 'POST', headers });
    for (let at = 0; at < body.length; at += 100_000)
      request.write(body.subarray(at, at + 100_000));
    request.end();
    const [answer] = (await once(request, 'response')) as [{ statusCode: number; resume(): void }];
    answer.resume();

    expect(answer.statusCode).toBe(204);
    expect(seen.results).toEqual([sha256(large)]);
  });

  it('is an unlinked file while it is handled, so that a crash leaves nothing', async () => {
    const { origin } = await start();
    seen.gate = new Gate();
    const answer = post(origin, report(large), csv);
    await seen.gate.reached;

    await expect(readdir(directory)).resolves.toEqual([]);
    expect((await stat(directory)).isDirectory()).toBe(true);
    seen.gate.open();
    expect((await answer).status).toBe(204);
  });

  it('of an event in progress is refused, and takes no space of the spool then', async () => {
    const { origin } = await start({ maxBytes: 7 * MIB });
    const request = report(large);
    seen.gate = new Gate();
    const first = post(origin, request, csv);
    await seen.gate.reached;

    expect((await post(origin, request, csv)).json?.['code']).toBe('in_progress');
    expect((await post(origin, request, csv)).json?.['code']).toBe('in_progress');
    seen.gate.open();
    expect((await first).status).toBe(204);
  });

  it('that was tampered with is rejected and its file removed', async () => {
    const { origin } = await start({ maxBytes: 4 * MIB });
    const tampered = { ...report(large), body: randomBytes(large.length) };

    for (let round = 0; round < 3; round++) {
      const answer = await post(origin, tampered, csv);
      expect([answer.status, answer.json?.['code']]).toEqual([400, 'hash_mismatch']);
    }
    expect(seen.results).toEqual([]);
    expect((await post(origin, report(large), csv)).status).toBe(204);
  });

  it('that ends early leaves no file', async () => {
    const { origin, app } = await start({ maxBytes: 4 * MIB });
    const server = app.getHttpServer() as EventEmitter;
    for (let round = 0; round < 3; round++) {
      const closed = new Promise<void>((resolve) => {
        server.once('connection', (socket: EventEmitter) => socket.once('close', () => resolve()));
      });
      const { token, body } = report(large);
      const request = httpRequest(`${origin}/webhooks`, {
        method: 'POST',
        headers: { authorization: `Bearer ${token}`, 'content-length': body.length },
      });
      request.on('error', () => {});
      request.write(body.subarray(0, 2 * MIB), () => request.destroy());
      await closed;
    }

    expect((await post(origin, report(large), csv)).status).toBe(204);
  });

  it('whose token expires before its end leaves no file', async () => {
    const { token, body } = report(large);
    const clock = new TestClock(decodeJwt(token).exp! * 1_000 - 1);
    const { origin, app } = await start({ maxBytes: 4 * MIB }, { clockTolerance: 0, clock });
    const connected = once(app.getHttpServer() as EventEmitter, 'connection') as Promise<[Socket]>;
    const request = httpRequest(`${origin}/webhooks`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-length': body.length },
    });
    request.write(body.subarray(0, 2 * MIB));
    const [socket] = await connected;
    // The body is read once the token is verified.
    while (socket.bytesRead < MIB) await new Promise((turn) => setImmediate(turn));
    await clock.advance(1);
    request.end(body.subarray(2 * MIB));
    const [answer] = (await once(request, 'response')) as [{ statusCode: number; resume(): void }];
    answer.resume();
    const signer = createTokenSigner({ issuer: ISSUER, key: SECRET, lifetime: 600 });
    const longer = signer.sign({ event: 'report.ready', hash: digest('sha256', large) }) as string;

    expect(answer.statusCode).toBe(401);
    expect((await post(origin, { token: longer, body: large }, csv)).status).toBe(204);
    expect(seen.results).toEqual([sha256(large)]);
  });

  it('whose handler failed can be sent again', async () => {
    const { origin } = await start({ maxBytes: 4 * MIB });
    const sent = report(large);
    seen.handle = () => Promise.reject(new Error('no'));
    expect((await post(origin, sent, csv)).status).toBe(500);
    seen.handle = (event) => hashOf(event.stream());

    expect((await post(origin, sent, csv)).status).toBe(204);
    expect(seen.results).toEqual([sha256(large)]);
  });

  it('is rejected with 503 while other bodies fill the spool', async () => {
    const { origin } = await start({ maxBytes: 4 * MIB });
    seen.gate = new Gate();
    const first = post(origin, report(large), csv);
    await seen.gate.reached;

    const second = await post(origin, report(large), csv);
    expect([second.status, second.json?.['code'], second.headers['retry-after']]).toEqual([
      503,
      'spool_unavailable',
      '5',
    ]);
    // A body that fits in memory is still accepted.
    expect((await post(origin, report('small'), { ...csv, path: '/guarded' })).status).toBe(201);
    seen.gate.open();
    expect((await first).status).toBe(204);
    expect((await post(origin, report(large), csv)).status).toBe(204);
  });

  it('is rejected with 503 and logged if the directory is not writable', async () => {
    const { origin, logger } = await start({ directory: '/dev/null/below' });

    const answer = await post(origin, report(large), csv);
    expect([answer.status, answer.json?.['code']]).toEqual([503, 'spool_unavailable']);
    expect(logger.at('error').join('\n')).toContain('ENOTDIR');
    expect((await post(origin, report('small'), csv)).status).toBe(204);
  });

  it('stays in memory if the spool is disabled', async () => {
    const { origin } = await start(false);

    expect((await post(origin, report(large), csv)).status).toBe(204);
    expect(seen.results).toEqual([sha256(large)]);
  });

  it('is recognised as a duplicate whether it was held in memory or in a file', async () => {
    const store = new MemoryReplayStore();
    const { origin: toFile } = await start({}, { replay: { store } });
    const { origin: toMemory } = await start(false, { replay: { store } });
    const sent = report(large, { id: 'report-1' });

    expect((await post(toFile, sent, csv)).headers['webhook-duplicate']).toBeUndefined();
    expect((await post(toMemory, sent, csv)).headers['webhook-duplicate']).toBe('true');
    expect((await post(toFile, sent, csv)).headers['webhook-duplicate']).toBe('true');
    const other = await post(toFile, report(randomBytes(2 * MIB), { id: 'report-1' }), csv);
    expect([other.status, other.json?.['code']]).toEqual([401, 'replayed']);
    expect(seen.results).toHaveLength(1);
  });

  it('is removed after the event was handled; reading it later throws', async () => {
    const { origin } = await start();
    let kept: WebhookEvent | undefined;
    let begun: Promise<string> | undefined;
    seen.handle = (event) => {
      kept = event;
      begun = hashOf(event.stream());
    };
    await post(origin, report(large), csv);

    // A stream that was opened earlier can be read to its end.
    await expect(begun).resolves.toBe(sha256(large));
    expect(() => kept!.stream()).toThrow('removed after the event was handled');
    await expect(kept!.rawBody()).rejects.toThrow('removed after the event was handled');
    expect(() => kept!.data).toThrow('removed after the event was handled');
  });

  it('is read from the start by every reader, independently of the others', async () => {
    const { origin } = await start();
    seen.handle = async (event) => {
      const beside = event.stream();
      for await (const chunk of event.stream()) {
        expect(chunk).toBeInstanceOf(Buffer);
        break;
      }
      event.stream().destroy();
      const raw = await event.rawBody();
      return [await hashOf(beside), sha256(raw), await hashOf(event.stream())];
    };

    expect((await post(origin, report(large), csv)).status).toBe(204);
    expect(seen.results).toEqual([Array(3).fill(sha256(large))]);
  });

  it('leaves no file after it was handled, even if one of its streams was never read', async () => {
    const { origin } = await start({ maxBytes: 4 * MIB });
    const streams: Readable[] = [];
    seen.handle = (event) => streams.push(event.stream());
    expect((await post(origin, report(large), csv)).status).toBe(204);

    await expect(hashOf(streams[0]!)).rejects.toThrow('removed after the event was handled');
    expect((await post(origin, report(large), csv)).status).toBe(204);
  });

  it.each(['while its handler runs', 'after its handler has ended'])(
    'leaves no file if what it is piped to fails %s',
    async (when) => {
      const { origin } = await start({ maxBytes: 4 * MIB });
      const chunk = new Gate();
      const failed = new Gate();
      seen.handle = async (event) => {
        const write = async (done: (error: Error) => void): Promise<void> => {
          await chunk.pass();
          done(new Error('The disk is full.'));
        };
        const target = new Writable({ write: (_chunk, _encoding, done) => void write(done) });
        event.stream().pipe(target.on('error', () => failed.open()));
        await chunk.reached;
        if (when === 'after its handler has ended') return;
        chunk.open();
        await failed.pass();
      };
      expect((await post(origin, report(large), csv)).status).toBe(204);
      chunk.open();
      await failed.pass();

      seen.handle = () => {};
      expect((await post(origin, report(large), csv)).status).toBe(204);
    },
  );

  it('remains available after verify() without a handler', async () => {
    const { app } = await start();
    const { token, body } = report(large);
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'text/csv' };

    const event = await app.get(WebhookVerifier).verify({ method: 'POST', headers, body });

    expect(sha256(await event.rawBody())).toBe(sha256(large));
  });

  it('of a crashed process is removed at the next start, but not that of a running process', async () => {
    const { pid } = spawnSync(process.execPath, ['-e', '']);
    const name = (owner: number): string =>
      join(directory, `nestjs-webhook-token-${owner}-00000000-0000-4000-8000-000000000000.body`);
    await writeFile(name(pid), 'left');
    await writeFile(name(process.pid), 'in use');
    await writeFile(join(directory, 'notes.txt'), 'not ours');
    await start();

    await expect(readdir(directory)).resolves.toEqual([
      name(process.pid).slice(directory.length + 1),
      'notes.txt',
    ]);
    await rm(name(process.pid));
    await rm(join(directory, 'notes.txt'));
  });

  it.each<[string, object]>([
    ['above', { above: -1 }],
    ['directory', { directory: '' }],
    ['maxBytes', { maxBytes: 1.5 }],
    ['abvoe', { abvoe: 1 }],
  ])('fails start-up with an invalid %s', async (member, spool) => {
    await expect(start(spool)).rejects.toThrow(member);
  });

  it.each<[string, object, object, string]>([
    [
      'only spool.maxBytes is set',
      { maxBytes: 4 * MIB },
      { maxBodyBytes: undefined },
      'receiver.spool.maxBytes: is 4194304, and maxBodyBytes is 33554432',
    ],
    [
      'only maxBodyBytes is set',
      {},
      { maxBodyBytes: 2_048 * MIB },
      'receiver.spool.maxBytes: is 1073741824, and maxBodyBytes is 2147483648',
    ],
  ])(
    'fails start-up if some bodies never fit, when %s',
    async (_name, spool, receiver, message) => {
      await expect(start(spool, receiver)).rejects.toThrow(message);
    },
  );

  it('needs no space of the spool if it is never written there', async () => {
    const spool = { above: 4 * MIB, maxBytes: 0 };
    const { origin } = await start(spool, { maxBodyBytes: 4 * MIB });

    expect((await post(origin, report(large), csv)).status).toBe(204);
  });

  it('is rejected by its size before anything is written', async () => {
    const { origin } = await start({ directory: '/dev/null/nowhere' }, { maxBodyBytes: 2 * MIB });

    const answer = await send(origin, { ...report(large), ...csv });
    expect(answer.status).toBe(413);
  });
});
