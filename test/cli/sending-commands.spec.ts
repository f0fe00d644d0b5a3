import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import {
  createServer,
  type IncomingMessage,
  request,
  type RequestListener,
  type Server,
} from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, afterEach, beforeAll, describe, expect, it } from '@jest/globals';
import { type INestApplication, Injectable } from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';
import { signWebhook } from 'nestjs-webhook-token/testing';
import { OnWebhookEvent } from 'nestjs-webhook-token';
import { runCommandLine } from '../../lib/cli/command-line.js';
import { ISSUER, PATH, SECRET, startApp } from '../fixtures/receiver-app.js';
import { type Report, Sink } from './conformance-run.js';

@Injectable()
class Orders {
  readonly seen: unknown[] = [];

  @OnWebhookEvent('order.*')
  on(order: unknown): void {
    this.seen.push(order);
  }
}

let app: INestApplication;
let url: string;
let folder: string;
beforeAll(async () => {
  const started = await startApp(new ExpressAdapter(), { providers: [Orders] });
  app = started.app;
  url = `${started.origin}${PATH}`;
  folder = await mkdtemp(join(tmpdir(), 'webhook-commands-'));
});
afterAll(async () => {
  await app.close();
  await rm(folder, { recursive: true });
});

interface Ended {
  readonly code: number;
  readonly out: string;
  readonly err: string;
  /** What `out` is decoded from. */
  readonly bytes: Buffer;
}

async function commandLine(
  args: readonly string[],
  stdin: string | Buffer = '',
  env = { WEBHOOK_SECRET: SECRET },
): Promise<Ended> {
  const [stdout, stderr] = [new Sink(), new Sink()];
  const io = { stdin: Readable.from([Buffer.from(stdin as string)]), stdout, stderr, env };
  const code = await runCommandLine(args, io);
  for (const text of [stdout.text, stderr.text]) expect(text).not.toContain(SECRET);
  return { code, out: stdout.text, err: stderr.text, bytes: stdout.bytes };
}

const issuer = ['--issuer', ISSUER];
const METHOD = ['--method', 'POST'];
const seen = (): unknown[] => app.get(Orders).seen;

const servers: Server[] = [];
async function answering(listener: RequestListener): Promise<string> {
  const server = createServer(listener);
  servers.push(server);
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
}
afterEach(async () => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
});

describe('send', () => {
  it('sends a signed event and prints the answer, but no token', async () => {
    const { code, out } = await commandLine([
      'send',
      url,
      'order.created',
      '{"id":"c1"}',
      ...issuer,
    ]);

    expect(code).toBe(0);
    expect(out).toMatch(
      /^HEAD http.+\nAuthorization: Bearer <token>\n\n204 acknowledged \(\d+ ms\)\n$/,
    );
    expect(seen()).toContainEqual({ id: 'c1' });
  });

  it('reads the data from a file or standard input', async () => {
    const file = join(folder, 'data.json');
    await writeFile(file, '{"id":"c2"}');
    const post = [...issuer, '--method', 'POST'];

    expect((await commandLine(['send', url, 'order.created', `@${file}`, ...post])).code).toBe(0);
    expect((await commandLine(['send', url, 'order.created', '-', ...post], '[3]')).code).toBe(0);
    expect(seen()).toEqual(expect.arrayContaining([{ id: 'c2' }, [3]]));
  });

  it('explains a refusal', async () => {
    const env = { WEBHOOK_SECRET: 'another-secret-of-32-bytes-or-more-0002' };
    const { code, out } = await commandLine(['send', url, 'order.created', ...issuer], '', env);

    expect(code).toBe(1);
    expect(out).toMatch(/^401 refused: bad_signature \(\d+ ms\)$/m);
    expect(out).toContain('The receiver has a different key, or trusts only another issuer');
  });

  it('records a request for its owner only, and sends it again byte for byte', async () => {
    const file = join(folder, 'request.json');
    const args = ['send', url, 'order.paid', '{"id":"c4"}', ...issuer, '--record', file];
    const first = await commandLine(args);
    const again = await commandLine(['send', '--replay', file]);
    const both = await commandLine(['send', url, 'order.paid', '--replay', file]);
    const explained = await commandLine(['explain', file, ...issuer]);

    expect([first.code, again.code, explained.code]).toEqual([0, 0, 0]);
    expect([both.code, both.err]).toEqual([2, expect.stringContaining('pass no event')]);
    expect(again.out).toContain('204 acknowledged, as a duplicate');
    expect((await stat(file)).mode & 0o077).toBe(0);
  });

  it('replays a captured HTTP request without the headers of its connection', async () => {
    const file = join(folder, 'request.http');
    const signed = await commandLine(['sign', 'order.paid', '{"id":"c6"}', ...issuer, ...METHOD]);
    const [head, body] = signed.out.split('\r\n\r\n');
    const captured = ['Host: shop.example', 'Connection: close', `Content-Length: ${body!.length}`];
    await writeFile(file, [head, ...captured, '', body].join('\r\n'));
    const { code, out } = await commandLine(['send', url, '--replay', file]);

    expect([code, out]).toEqual([0, expect.stringContaining('204 acknowledged')]);
    expect(seen()).toContainEqual({ id: 'c6' });
  });

  it('reports a captured request that HTTP does not allow as wrong usage', async () => {
    const file = join(folder, 'invalid.json');
    await writeFile(file, JSON.stringify({ method: 'POST', headers: { 'x-note': '\u20ac' } }));
    const { code, err } = await commandLine(['send', url, '--replay', file]);

    expect([code, err]).toEqual([2, expect.stringMatching(/cannot be sent: .*x-note/)]);
  });

  it("makes a file that it records to its owner's, and reports one that it cannot write", async () => {
    const file = join(folder, 'shared.json');
    await writeFile(file, '{}', { mode: 0o644 });
    const args = ['send', url, 'order.paid', '{"id":"c5"}', ...issuer, '--record'];
    const recorded = await commandLine([...args, file]);
    const refused = await commandLine([...args, join(folder, 'missing', 'request.json')]);

    expect([recorded.code, (await stat(file)).mode & 0o077]).toEqual([0, 0]);
    expect([refused.code, refused.err]).toEqual([2, expect.stringContaining('ENOENT')]);
    expect(seen()).toContainEqual({ id: 'c5' });
  });

  it('records to a pipe without changing its mode', async () => {
    const pipe = join(folder, 'pipe');
    await promisify(execFile)('mkfifo', ['-m', '644', pipe]);
    const args = ['send', url, 'order.paid', '{"id":"c7"}', ...issuer, '--record', pipe];
    const [recorded, { code }] = await Promise.all([readFile(pipe, 'utf8'), commandLine(args)]);

    expect([code, JSON.parse(recorded)]).toEqual([0, expect.objectContaining({ url })]);
    expect((await stat(pipe)).mode & 0o777).toBe(0o644);
  });

  it('prints JSON', async () => {
    const { out } = await commandLine(['send', url, 'order.created', ...issuer, '--json']);

    expect(JSON.parse(out)).toMatchObject({ method: 'HEAD', url, status: 204, acknowledged: true });
  });

  it('says what to do about an answer that is not from a receiver', async () => {
    const moved = await answering((_, response) => response.writeHead(301).end());
    const any = await answering((_, response) => response.end('hello'));
    const run = async (to: string, ...more: string[]): Promise<Ended> =>
      commandLine(['send', to, 'order.created', '{}', ...issuer, ...more]);

    expect((await run(moved)).out).toContain('Redirects are not followed');
    expect((await run(any)).out).toContain('Only 202 or 204 acknowledges a HEAD');
    expect((await run(any, '--method', 'POST')).code).toBe(0);
    expect((await run(`${url}/other`)).out).toContain('There is no receiver at this path');
  });

  it('says that a receiver may not support HEAD', async () => {
    const postOnly = await answering(({ method }, response) => {
      response.writeHead(method === 'HEAD' ? 405 : 204).end();
    });
    const head = await commandLine(['send', postOnly, 'order.created', ...issuer]);
    const post = await commandLine(['send', postOnly, 'order.created', ...issuer, ...METHOD]);

    expect([head.code, head.out]).toEqual([1, expect.stringContaining('pass --method POST')]);
    expect(post.code).toBe(0);
  });

  it('prints code, detail and errors of a refusal as JSON', async () => {
    const problem = { code: 'invalid_payload', detail: 'not an order', errors: ['total', 3] };
    const strict = await answering((_, response) => {
      response.writeHead(422, { 'WWW-Authenticate': 'Bearer error_description="unused"' });
      response.end(JSON.stringify(problem));
    });
    const { code, out } = await commandLine([
      'send',
      strict,
      'order.created',
      ...issuer,
      ...METHOD,
      '--json',
    ]);

    expect(code).toBe(1);
    expect(JSON.parse(out)).toMatchObject({
      status: 422,
      bytes: 0,
      acknowledged: false,
      code: 'invalid_payload',
      detail: 'not an order: total; 3',
      advice: expect.stringContaining('DTO or schema'),
    });
  });

  it.each([
    ['an exception of Nest', { statusCode: 500, message: 'no stock' }, undefined, 'no stock'],
    [
      'a list of messages',
      { message: ['a is empty', 'b is empty'] },
      undefined,
      'a is empty; b is',
    ],
    ['an error of its own', { code: 'E42', message: 'closed' }, 'E42', 'closed'],
    ['another object', { reason: 'closed' }, undefined, '{"reason":"closed"}'],
    ['plain text', 'upstream timed out', undefined, 'upstream timed out'],
  ])('prints the error of an application that answers with %s', async (_, body, code, detail) => {
    const failing = await answering((_request, response) => {
      response.writeHead(500).end(typeof body === 'string' ? body : JSON.stringify(body));
    });
    const { out } = await commandLine(['send', failing, 'a.b', ...issuer, ...METHOD]);

    expect(out).toContain(`500 refused${code === undefined ? '' : `: ${code}`} (`);
    expect(out).toContain(`\n  ${detail}`);
  });

  it('prints no control characters and tokens of an answer', async () => {
    const echo = await answering(({ headers }, response) => {
      const detail = `\u001b[31m${headers.authorization}`;
      response.writeHead(401).end(JSON.stringify({ code: 'bad\u001b', detail }));
    });
    const { out } = await commandLine(['send', echo, 'order.created', ...issuer]);

    expect(out).not.toMatch(/eyJ|\u001b/);
  });

  it('reports that there is no answer', async () => {
    const silent = await answering(() => {});
    const timeout = ['--timeout', '50ms'];
    const slow = await commandLine(['send', silent, 'order.created', ...issuer, ...timeout]);
    const closed = await commandLine([
      'send',
      'http://[::ffff:127.0.0.1]:1',
      'order.created',
      ...issuer,
    ]);

    expect([slow.code, slow.err]).toEqual([
      3,
      expect.stringContaining('No answer arrived in time'),
    ]);
    expect([closed.code, closed.err]).toEqual([3, expect.stringContaining('did not answer')]);
  });

  it('ends a request in time, even if garbage is collected meanwhile', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const silent = await answering(() => collect());
    const timeout = ['--timeout', '200ms'];
    const { code, err } = await commandLine([
      'send',
      silent,
      'order.created',
      ...issuer,
      ...timeout,
    ]);

    expect([code, err]).toEqual([3, expect.stringContaining('No answer arrived in time')]);
  });

  it('reports an answer that ends too late', async () => {
    const unfinished = await answering((_request, response) => {
      response.writeHead(200, { 'content-length': '100' }).write('{');
    });
    const timeout = ['--timeout', '50ms', ...METHOD];
    const { code, err } = await commandLine([
      'send',
      unfinished,
      'order.created',
      ...issuer,
      ...timeout,
    ]);

    expect([code, err]).toEqual([3, expect.stringContaining('No answer arrived in time')]);
  });

  it('reports the status of an answer whose body never ends', async () => {
    const endless = await answering((_request, response) => {
      response.writeHead(500);
      const write = (): void => void response.write('x'.repeat(65_536), () => setImmediate(write));
      response.on('close', () => response.destroy());
      write();
    });
    const timeout = ['--timeout', '5s', ...METHOD];
    const { code, out } = await commandLine([
      'send',
      endless,
      'order.created',
      ...issuer,
      ...timeout,
    ]);

    expect([code, out]).toEqual([1, expect.stringContaining('500 ')]);
  });

  it('reports an answer that changes the protocol', async () => {
    const upgrading = await answering((_request, response) => {
      response.writeHead(101, { connection: 'upgrade', upgrade: 'h2c' }).end();
    });
    const { code, err } = await commandLine(['send', upgrading, 'order.created', ...issuer]);

    expect([code, err]).toEqual([3, expect.stringContaining('The answer changes the protocol.')]);
  });

  it('rounds a timeout up to whole milliseconds', async () => {
    const timeout = ['--timeout', '60000.5ms'];
    const { code } = await commandLine(['send', url, 'order.created', ...issuer, ...timeout]);

    expect(code).toBe(0);
  });

  it('sends to private networks only if it is allowed', async () => {
    const args = ['send', 'https://10.255.255.1/', 'order.created', ...issuer];
    const refused = await commandLine(args);
    const allowed = await commandLine([...args, '--allow-private', '--timeout', '50ms']);

    expect([refused.code, refused.err]).toEqual([3, expect.stringContaining('--allow-private')]);
    expect(allowed.err).not.toContain('--allow-private');
  });
});

describe('sign', () => {
  it.each([
    ['raw HTTP', []],
    ['JSON', ['--json']],
  ])('prints a request as %s that explain accepts', async (_, more) => {
    const args = ['sign', 'order.created', '{"id":1}', ...issuer, '--method', 'POST', ...more];
    const { code, out } = await commandLine(args);
    const explained = await commandLine(['explain', ...issuer], out);

    expect([code, explained.code]).toEqual([0, 0]);
  });

  it('signs for every audience and the lifetime that it is given', async () => {
    const audiences = ['https://a.example', 'https://b.example'];
    const options = [...audiences.flatMap((one) => ['--audience', one]), '--lifetime', '90'];
    const signed = await commandLine(['sign', 'order.created', ...issuer, ...options, '--json']);
    const [token] = /eyJ[\w.-]+/.exec(signed.out)!;
    const decoded = await commandLine(['decode', '--json'], token);
    const { claims } = JSON.parse(decoded.out) as {
      claims: { aud: string[]; iat: number; exp: number };
    };

    expect([claims.aud, claims.exp - claims.iat]).toEqual([audiences, 90]);
  });

  it('sends data of a type that only begins like that of JSON as it is', async () => {
    const type = ['--content-type', 'application/json-seq'];
    const signed = await commandLine(['sign', 'file.added', '[1]\n[2]', ...issuer, ...type]);

    expect([signed.code, signed.out]).toEqual([0, expect.stringContaining('[1]\n[2]')]);
  });

  it('prints bytes that are not UTF-8 as they are', async () => {
    const file = join(folder, 'data.bin');
    await writeFile(file, Buffer.from([0xff, 0x00, 0xfe, 0x0a]));
    const type = ['--content-type', 'application/octet-stream'];
    const { bytes } = await commandLine(['sign', 'file.added', `@${file}`, ...issuer, ...type]);
    const explained = await commandLine(['explain', ...issuer], bytes);

    expect(explained.code).toBe(0);
  });

  it('refuses JSON that is not UTF-8, which it would change', async () => {
    const file = join(folder, 'latin1.json');
    await writeFile(file, Buffer.from('{"name":"J\u00fcrgen"}', 'latin1'));
    const ofFile = await commandLine(['sign', 'a.b', `@${file}`, ...issuer]);
    const ofInput = await commandLine(['sign', 'a.b', '-', ...issuer], Buffer.from([0x22, 0xff]));

    expect([ofFile.code, ofFile.out]).toEqual([2, '']);
    expect(ofFile.err).toContain(`${file} is not text in UTF-8: save it in that encoding.`);
    expect([ofInput.code, ofInput.err]).toEqual([
      2,
      expect.stringMatching(/^The data is not text/),
    ]);
  });

  it.each([
    ['12345678901234567890', '12345678901234567000'],
    ['[1, -0.1234567890123456789]', '-0.12345678901234568'],
    ['{"a":{"b":1e400}}', 'null'],
    ['{"a":1e-400}', '0'],
  ])('refuses %s, whose number JavaScript rounds', async (data, sent) => {
    const { code, out, err } = await commandLine(['sign', 'a.b', ...issuer, '--', data]);
    const number = /-?\d[\d.e-]{4,}/.exec(data)![0];

    expect([code, out]).toEqual([2, '']);
    expect(err).toContain(
      `The number ${number} would be sent as ${sent}: write it as a string, "${number}".`,
    );
  });

  it.each([
    ['[1.0, -0, 0.10, 1E2, 100000000000000000000000, 1.5e-7, 9007199254740991]'],
    ['{"12345678901234567890":"\\"12345678901234567890"}'],
    ['-5'],
  ])('signs %s, whose numbers keep their value', async (data) => {
    const signed = await commandLine(['sign', 'a.b', ...issuer, ...METHOD, '--json', '--', data]);
    const { body } = JSON.parse(signed.out) as { body: string };

    expect(JSON.parse(body)).toEqual(JSON.parse(data.replace('-0', '0')));
  });

  it.each([
    ['characters', 'x', 9_000_000],
    ['escapes', '\\n', 10_000_000],
  ])('signs a string of millions of %s', async (_, one, count) => {
    const data = `"${one.repeat(count)}"`;
    const { code, out } = await commandLine(['sign', 'a.b', '-', ...issuer, ...METHOD], data);

    expect([code, out.endsWith(`\r\n\r\n${data}`)]).toEqual([0, true]);
  });

  it('refuses a number that JavaScript rounds after a string with escapes', async () => {
    const data = '["\\\\","\\"1\\u0031",12345678901234567890]';
    const { code, err } = await commandLine(['sign', 'a.b', data, ...issuer]);

    expect([code, err]).toEqual([2, expect.stringMatching(/^The number 12345678901234567890 /)]);
  });
});

const MARKED: readonly (readonly [string, (text: string) => Buffer])[] = [
  ['UTF-8 with a byte order mark', (text) => Buffer.from(`\uFEFF${text}`)],
  ['UTF-16', (text) => Buffer.from(`\uFEFF${text}`, 'utf16le')],
  ['big-endian UTF-16', (text) => Buffer.from(`\uFEFF${text}`, 'utf16le').swap16()],
];

describe.each(MARKED)('a text file in %s', (name, encode) => {
  const save = async (file: string, text: string): Promise<string> => {
    const path = join(folder, `${name.replaceAll(' ', '-')}-${file}`);
    await writeFile(path, encode(text));
    return path;
  };

  it('can have the data, the variables and the secret', async () => {
    const data = await save('data.json', '{"name":"J\u00fcrgen"}');
    const env = await save('.env', `WEBHOOK_ISSUER=${ISSUER}\r\nWEBHOOK_SECRET=${SECRET}\r\n`);
    const secret = await save('secret', `${SECRET}\r\n`);
    const sign = ['sign', 'a.b', `@${data}`, ...METHOD, '--json'];
    const ofEnv = await commandLine([...sign, '--env-file', env], '', {} as never);
    const key = [...issuer, '--secret-file', secret];
    const ofSecret = await commandLine([...sign, ...key], '', {} as never);

    for (const { code, out } of [ofEnv, ofSecret]) {
      expect([code, out]).toEqual([0, expect.stringContaining('J\u00fcrgen')]);
      expect((await commandLine(['explain', ...issuer], out)).code).toBe(0);
    }
  });

  it.each([
    ['raw HTTP', []],
    ['JSON', ['--json']],
  ])('can have a captured request as %s', async (form, more) => {
    const args = ['sign', 'order.paid', '{"id":"m1"}', ...issuer, ...METHOD, ...more];
    const file = await save(`capture-${form.replace(' ', '-')}`, (await commandLine(args)).out);
    const explained = await commandLine(['explain', file, ...issuer]);
    const replayed = await commandLine(['send', url, '--replay', file]);

    expect([explained.code, replayed.code]).toEqual([0, 0]);
  });

  it('can have an export', async () => {
    const file = await save('export.json', '[]');
    const args = ['import', 'svix', file, '--database-url', 'postgres://127.0.0.1:1/none'];
    const { err } = await commandLine(args);

    expect(err).not.toContain('not valid JSON');
  });
});

describe('listen', () => {
  async function listening(
    ...args: string[]
  ): Promise<{ origin: string; out: Sink; stop: () => Promise<number> }> {
    const controller = new AbortController();
    const [out, stderr] = [new Sink(), new Sink()];
    const env = { WEBHOOK_SECRET: SECRET };
    const io = { stdin: Readable.from([]), stdout: out, stderr, env, signal: controller.signal };
    const ended = runCommandLine(['listen', ...issuer, '--port', '0', ...args], io);
    while (!stderr.text.includes('Listening')) await new Promise((done) => setImmediate(done));
    const stop = async (): Promise<number> => {
      controller.abort();
      return ended;
    };
    return { origin: /http:\S+/.exec(stderr.text)![0], out, stop };
  }
  const send = async (to: string, ...more: string[]): Promise<Ended> =>
    commandLine(['send', to, 'order.created', '{"id":"l1"}', ...issuer, ...more]);

  it('verifies requests and prints their events', async () => {
    const { origin, out, stop } = await listening();
    const accepted = await send(origin);
    const { headers } = await signWebhook(
      'order.created',
      {},
      { issuer: ISSUER, secret: 'x'.repeat(32) },
    );
    const { status } = await fetch(origin, { method: 'HEAD', headers });

    expect([accepted.code, status, await stop()]).toEqual([0, 401, 0]);
    expect(out.text).toMatch(/HEAD 204 order\.created id \S+\n {2}\{"id":"l1"\}\n/);
    expect(out.text).toMatch(/HEAD 401 refused: bad_signature/);
    expect(out.text).not.toContain('eyJ');
  });

  it('passes the conformance probes in front of a receiver', async () => {
    const { origin, stop } = await listening('--forward-to', url);
    const { code, out } = await commandLine(['conformance', origin, ...issuer, '--json']);
    await stop();
    const { end, probes } = JSON.parse(out) as Report;

    expect(probes.filter(({ verdict }) => !['pass', 'skipped'].includes(verdict))).toEqual([]);
    expect([code, end]).toEqual([0, 'complete']);
  });

  it('forwards every value of a repeated header', async () => {
    let forwarded: string[] | undefined;
    const application = await answering((request, response) => {
      forwarded = request.headersDistinct['x-tag'];
      response.writeHead(204).end();
    });
    const { origin, stop } = await listening('--forward-to', application);
    const key = { issuer: ISSUER, secret: SECRET };
    const { headers } = await signWebhook('order.created', {}, key);
    const repeated = request(origin, {
      method: 'HEAD',
      headers: { ...headers, 'X-Tag': ['a', 'b'] },
    });
    const [answer] = (await once(repeated.end(), 'response')) as [IncomingMessage];
    answer.resume();
    await stop();

    expect([answer.statusCode, forwarded]).toEqual([204, ['a', 'b']]);
  });

  it('prints the number of bytes of data that is not JSON', async () => {
    const { origin, out, stop } = await listening();
    const type = ['--content-type', 'application/octet-stream'];
    const sent = await commandLine(['send', origin, 'file.added', 'abc', ...issuer, ...type]);

    expect([sent.code, await stop()]).toEqual([0, 0]);
    expect(out.text).toMatch(/POST 204 file\.added id \S+\n {2}"<3 bytes>"\n/);
  });

  it.each([[[]], [['--json']]])('prints an event with %j on its own lines only', async (flags) => {
    const breaks = '\u0085\u009b\u007f\u2028\u2029';
    const application = await answering((_, response) => {
      response.writeHead(503).end(JSON.stringify({ message: `closed${breaks}204` }));
    });
    const { origin, out, stop } = await listening('--forward-to', application, ...flags);
    const event = JSON.stringify({ id: `l1${breaks}12:00:00 HEAD 204` });
    const sent = await commandLine(['send', origin, 'order.created', event, ...issuer, ...METHOD]);
    await stop();

    expect([out.text, sent.out].join().replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Zl}\p{Zp}]/u);
    expect(out.text).toContain(String.raw`l1\u0085\u009b\u007f\u2028\u202912:00:00`);
    expect(out.text).toContain('closed 204');
  });

  it('reports a request that ends before its body, and keeps listening', async () => {
    const { origin, out, stop } = await listening();
    const { port, hostname: host } = new URL(origin);
    const signed = await commandLine([
      'sign',
      'order.created',
      '{"id":"l1"}',
      ...issuer,
      ...METHOD,
    ]);
    const socket = connect({ port: Number(port), host });
    socket.end(signed.out.replace('\r\n', '\r\nHost: x\r\nContent-Length: 99\r\n'));
    socket.resume();
    while (!out.text.includes('POST')) await new Promise((done) => setImmediate(done));
    const next = await send(origin);

    expect([next.code, await stop()]).toEqual([0, 0]);
    expect(out.text).toContain('POST 400 refused: payload_incomplete: the connection ended before');
  });

  it('reports that the application it forwards to does not answer, and a port in use', async () => {
    const { origin, out, stop } = await listening('--forward-to', 'http://127.0.0.1:1/');
    const unforwarded = await send(origin);
    const taken = await commandLine(['listen', ...issuer, '--port', new URL(origin).port]);

    expect([unforwarded.code, taken.code, await stop()]).toEqual([1, 3, 0]);
    expect(out.text).toMatch(/HEAD 502 .*\n {2}no answer from http:\/\/127\.0\.0\.1:1: /);
    expect(taken.err).toMatch(/^Port \d+ cannot be used \(EADDRINUSE\)\./);
  });

  it('gives up a request that it forwards once it is interrupted', async () => {
    const application = createServer();
    await once(application.listen(0, '127.0.0.1'), 'listening');
    const { port } = application.address() as AddressInfo;
    const to = ['--forward-to', `http://127.0.0.1:${port}/`, '--timeout', '1h'];
    const { origin, out, stop } = await listening(...to);
    const sent = send(origin);
    const [forwarded] = (await once(application, 'request')) as [IncomingMessage];
    const closed = once(forwarded.socket, 'close');
    const code = await stop();
    await closed;
    while (out.text === '') await new Promise((done) => setImmediate(done));
    application.close();

    expect([code, (await sent).code]).toEqual([0, 3]);
    expect(out.text).toMatch(/HEAD 502 .*\n {2}no answer from .*: The command was interrupted\./);
  });

  it('fails the first attempts of an event', async () => {
    const { origin, out, stop } = await listening('--fail', '503x2,500', '--json');
    const codes: number[] = [];
    for (let n = 0; n < 4; n++) codes.push((await send(origin, '--id', 'evt-1')).code);
    await stop();
    const lines = out.text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as unknown);

    expect(codes).toEqual([1, 1, 1, 0]);
    expect(lines).toMatchObject([
      { status: 503, attempt: 1, verified: true, id: 'evt-1', data: { id: 'l1' } },
      { status: 503, attempt: 2 },
      { status: 500, attempt: 3 },
      { status: 204, attempt: 4 },
    ]);
  });

  it('prints the error of the application it forwards to, and passes it back', async () => {
    const application = await answering((_, response) => {
      response.writeHead(503, { 'Retry-After': '7' });
      response.end('{"code":"E42","message":"closed"}');
    });
    const { origin, out, stop } = await listening('--forward-to', application);
    const key = { issuer: ISSUER, secret: SECRET };
    const { headers, body } = await signWebhook('order.created', [1], key);
    const answer = await fetch(origin, { method: 'POST', headers, body: body! });
    const passedBack = await answer.text();
    await stop();

    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '7']);
    expect(passedBack).toBe('{"code":"E42","message":"closed"}');
    expect(out.text).toMatch(/POST 503 order\.created id \S+\n {2}E42: closed\n {2}\[1\]\n/);
  });

  it('asks the application for an answer that is not compressed', async () => {
    let encoding: string | undefined;
    const application = await answering((request, response) => {
      encoding = request.headers['accept-encoding'];
      response.writeHead(204).end();
    });
    const { origin, stop } = await listening('--forward-to', application);
    const key = { issuer: ISSUER, secret: SECRET };
    const { headers } = await signWebhook('order.created', {}, key);
    const compressed = { ...headers, 'Accept-Encoding': 'gzip, br' };
    const { status } = await fetch(origin, { method: 'HEAD', headers: compressed });
    await stop();

    expect([status, encoding]).toEqual([204, 'identity']);
  });

  it('forwards verified requests and answers with their status', async () => {
    const { origin, out, stop } = await listening('--forward-to', url);
    const accepted = await send(origin, '--method', 'POST', '--id', 'evt-2');
    const conflicting = await commandLine([
      'send',
      origin,
      'order.created',
      '{}',
      ...issuer,
      '--id',
      'evt-2',
    ]);
    await stop();

    expect([accepted.code, conflicting.code]).toEqual([0, 1]);
    expect(conflicting.out).toContain('401 refused: replayed');
    expect(out.text).toMatch(/HEAD 401 order\.created id evt-2 \(request 2\)\n {2}replayed: /);
    expect(out.text).toContain('POST 204');
    expect(out.text).toContain('HEAD 401');
    expect(seen()).toContainEqual({ id: 'l1' });
  });
});

describe('verify and decode', () => {
  const token = async (secret = SECRET): Promise<string> =>
    (await signWebhook('order.created', { id: 1 }, { issuer: ISSUER, secret })).token;

  it('verifies a token from standard input', async () => {
    const valid = await commandLine(['verify', ...issuer], `Bearer ${await token()}\n`);
    const forged = await commandLine(['verify', ...issuer, '--json'], await token('x'.repeat(32)));

    expect([valid.code, valid.out]).toEqual([0, expect.stringMatching(/^valid\nheader \{/)]);
    expect(forged.code).toBe(1);
    expect(JSON.parse(forged.out)).toMatchObject({ verified: false, code: 'bad_signature' });
  });

  it('decodes a token without a key, and marks it as unverified', async () => {
    const text = await commandLine(['decode'], await token());
    const json = await commandLine(['decode', '--json'], await token());

    expect(text.out).toMatch(/^UNVERIFIED: anyone can write these claims\n/);
    expect(JSON.parse(json.out)).toMatchObject({ verified: false, claims: { iss: ISSUER } });
  });

  it('escapes characters that control a terminal or the direction of text', async () => {
    const data = { note: 'a\u009b31m\u202eb\u2066c\u001b]0;x\u0007' };
    const { token: hostile } = await signWebhook('order.created', data, {
      issuer: ISSUER,
      secret: SECRET,
    });
    const text = await commandLine(['decode'], hostile);
    const json = await commandLine(['decode', '--json'], hostile);

    for (const { out } of [text, json]) {
      expect(out).not.toMatch(/[^\P{Cc}\n]|[\u200e\u200f\u202a-\u202e\u2066-\u2069]/u);
      expect(out).toContain('\\u009b31m\\u202eb');
    }
    expect(JSON.parse(json.out)).toMatchObject({ claims: { webhook: { data } } });
  });

  it('takes no token as an argument', async () => {
    const secretToken = await token();
    for (const command of ['verify', 'decode']) {
      const { code, out, err } = await commandLine([
        command,
        secretToken,
        ...(command === 'verify' ? issuer : []),
      ]);
      expect([code, out]).toEqual([2, '']);
      expect(err).toContain('not as an argument');
      expect(err).not.toContain(secretToken);
    }
  });
});

describe('keygen', () => {
  it('creates a secret that signs', async () => {
    const { code, out } = await commandLine(['keygen']);
    const signed = await commandLine(['sign', 'order.created', ...issuer], '', {
      WEBHOOK_SECRET: out.trim(),
    });

    expect([code, signed.code]).toEqual([0, 0]);
    expect(Buffer.from(out, 'base64')).toHaveLength(32);
  });

  it.each(['ES256', 'EdDSA'])('creates a key pair of %s, in files of their owner', async (alg) => {
    const out = join(folder, alg);
    const created = await commandLine(['keygen', alg, '--out', out, '--kid', 'k1']);
    const key = ['--alg', alg, '--kid', 'k1'];
    const signed = await commandLine(
      ['sign', 'order.created', ...issuer, ...key, '--key', `${out}.private.pem`],
      '',
      {} as never,
    );
    const explained = await commandLine(
      ['explain', ...issuer, ...key, '--key', `${out}.public.pem`],
      signed.out,
      {} as never,
    );
    const jwks = JSON.parse(await readFile(`${out}.jwks.json`, 'utf8')) as unknown;
    const again = await commandLine(['keygen', alg, '--out', out]);

    expect([created.code, created.out, signed.code, explained.code]).toEqual([0, '', 0, 0]);
    expect(jwks).toMatchObject({ keys: [{ kid: 'k1', alg, use: 'sig' }] });
    expect(JSON.stringify(jwks)).not.toContain('"d"');
    expect((await stat(`${out}.private.pem`)).mode & 0o077).toBe(0);
    expect([again.code, again.err]).toEqual([2, expect.stringContaining('exists')]);
  });

  it('writes either all files of a key pair or none', async () => {
    const out = join(folder, 'partial');
    await writeFile(`${out}.jwks.json`, '{}');
    const { code } = await commandLine(['keygen', 'ES256', '--out', out]);

    expect(code).toBe(2);
    expect((await readdir(folder)).filter((name) => name.startsWith('partial'))).toEqual([
      'partial.jwks.json',
    ]);
  });

  it.each(['HS256', 'ES256'])('lists the files of %s as JSON, without the key', async (alg) => {
    const out = join(folder, `json-${alg}`);
    const kid = alg === 'ES256' ? ['--kid', 'k1'] : [];
    const created = await commandLine(['keygen', alg, '--out', out, ...kid, '--json']);
    const names = (await readdir(folder)).filter((name) => name.startsWith(`json-${alg}.`));

    expect(JSON.parse(created.out)).toEqual({
      alg,
      ...(alg === 'ES256' && { kid: 'k1' }),
      files: expect.arrayContaining(names.map((name) => join(folder, name))),
    });
    expect(names).not.toEqual([]);
  });
});

describe('completion', () => {
  it.each(['bash', 'zsh', 'fish'])('completes commands and options in %s', async (shell) => {
    const { code, out } = await commandLine(['completion', shell]);

    expect(code).toBe(0);
    for (const word of ['send', 'forward-to', 'receiver-queue', 'only'])
      expect(out).toContain(word);
    expect(out).toMatch(/^complete .*npx/m);
  });

  it.each<[string, string]>([
    ['nestjs-webhook-token li', 'listen'],
    ['npx nestjs-webhook-token li', 'listen'],
    ['npx --no nestjs-webhook-token listen --forw', '--forward-to'],
    ['./node_modules/.bin/nestjs-webhook-token listen --forw', '--forward-to'],
    ['npx another-package li', ''],
    ['npx li', ''],
  ])('bash completes "%s" with "%s"', async (line, expected) => {
    const { out } = await commandLine(['completion', 'bash']);
    const words = line.split(' ');
    const script = `${out}
COMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; COMPREPLY=()
_nestjs_webhook_token "${words[0]}"
echo "\${COMPREPLY[*]}"`;

    const { stdout } = await promisify(execFile)('bash', ['-c', script]);

    expect(stdout.trim()).toBe(expected);
  });
});

describe('--env-file', () => {
  it('has issuer and secret, and replaces those of the environment', async () => {
    const file = join(folder, '.env');
    await writeFile(file, `WEBHOOK_ISSUER=${ISSUER}\nWEBHOOK_SECRET='${SECRET}'\n`);
    const args = ['send', url, 'order.created', '{"id":"o9"}', '--env-file', file];

    const { code } = await commandLine(args, '', {
      WEBHOOK_SECRET: 'another-secret-of-32-bytes-or-more',
    });

    expect(code).toBe(0);
    expect(seen()).toContainEqual({ id: 'o9' });
  });
});

describe('wrong usage', () => {
  it.each<[string, string[], RegExp]>([
    [
      'a secret as an argument',
      ['send', 'https://crm.example', 'a.b', ...issuer, '--secret', 'hidden-value'],
      /--secret is not an option/,
    ],
    ['an unknown option', ['sign', 'a.b', ...issuer, '--hidden-value'], /is unknown/],
    ['no issuer', ['sign', 'a.b'], /--issuer is required/],
    ['neither issuer nor key', ['sign', 'a.b', '--key', 'no/such'], /--issuer is[^]*--key cannot/],
    [
      'a secret in place of its file',
      ['sign', 'a.b', ...issuer, '--secret-file', 'hidden-value'],
      /The file of --secret-file cannot be read \(ENOENT\)/,
    ],
    [
      'a key in place of its file',
      ['sign', 'a.b', ...issuer, '--key', 'hidden-value', '--alg', 'ES256'],
      /The file of --key cannot be read \(ENOENT\)/,
    ],
    ['no event', ['sign', ...issuer], /name of the event/],
    ['data that is not JSON', ['sign', 'a.b', '{hidden-value', ...issuer], /not valid JSON/],
    [
      'a file that does not exist',
      ['sign', 'a.b', '@/nowhere', ...issuer],
      /cannot be read \(ENOENT\)/,
    ],
    [
      'plain HTTP to another host',
      ['send', 'http://crm.example', 'a.b', ...issuer],
      /--allow-http/,
    ],
    ['no URL', ['send', 'crm', 'a.b', ...issuer], /Pass the URL/],
    [
      'a timeout that a timer cannot measure',
      ['send', 'https://crm.example', 'a.b', ...issuer, '--timeout', '25d'],
      /--timeout must be a positive duration of at most 24d/,
    ],
    [
      'a status that is not a failure',
      ['listen', ...issuer, '--fail', '204'],
      /--fail must list statuses/,
    ],
    [
      'a fourth argument of send',
      ['send', 'https://crm.example', 'a.b', '{', '}', ...issuer],
      /one quoted/,
    ],
    ['a path of listen', ['listen', '/hooks', ...issuer], /Pass options only/],
    ['an unknown method', ['sign', 'a.b', ...issuer, '--method', 'PUT'], /HEAD, POST or auto/],
    ['a lifetime in words', ['sign', 'a.b', ...issuer, '--lifetime', '5m'], /number of seconds/],
    ['an unknown algorithm', ['keygen', 'HS1'], /Pass one algorithm/],
    [
      'data that begins like an option',
      ['sign', 'a.b', '-5', ...issuer],
      /^An option is unknown\. Write -- before/,
    ],
    ['an empty key id', ['keygen', 'EdDSA', '--kid', ''], /--kid must be a string of 1 to/],
    ['an empty file name', ['keygen', '--out', ''], /--out must be a file name/],
    ['a folder for a file name', ['keygen', '--out', './'], /--out must be a file name/],
    ['a key id of a secret', ['keygen', '--kid', 'k1'], /--kid needs a key pair/],
    ['a port out of range', ['listen', ...issuer, '--port', '99999'], /from 0 to 65535/],
    ['an unknown shell', ['completion', 'tcsh'], /Pass one shell/],
    ['no token', ['decode'], /not a signed token/],
  ])('reports %s', async (_, args, remedy) => {
    const { code, out, err } = await commandLine(args);

    expect([code, out]).toEqual([2, '']);
    expect(err).toMatch(remedy);
    expect(err).toMatch(/See: nestjs-webhook-token \w+ --help/);
    if (!args.includes('--hidden-value')) expect(err).not.toContain('hidden-value');
  });
});
