import { execFile, spawn } from 'node:child_process';
import { createServer } from 'node:http';
import { generateKeyPairSync } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { INestApplication } from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';
import { probesFor } from '../../lib/cli/conformance/conformance.runner.js';
import { runCommandLine } from '../../lib/cli/command-line.js';
import { freePort } from '../fixtures/free-port.js';
import { PATH, ISSUER, SECRET, startApp } from '../fixtures/receiver-app.js';
import { conformance, report, Sink, type Report } from './conformance-run.js';

const ROOT = join(import.meta.dirname, '../..');

let app: INestApplication;
let url: string;
let folder: string;

beforeAll(async () => {
  const started = await startApp(new ExpressAdapter());
  ({ app } = started);
  url = `${started.origin}${PATH}`;
  folder = await mkdtemp(join(tmpdir(), 'webhook-cli-'));
});
afterAll(async () => {
  await app.close();
  await rm(folder, { recursive: true });
});

async function commandLine(
  ...args: string[]
): Promise<{ code: number; stdout: string; stderr: string }> {
  const [stdout, stderr] = [new Sink(), new Sink()];
  const code = await runCommandLine(args, { stdin: Readable.from([]), stdout, stderr, env: {} });
  return { code, stdout: stdout.text, stderr: stderr.text };
}

describe('the command line', () => {
  it('prints its help', async () => {
    const { code, stdout } = await commandLine('--help');

    expect([code, stdout]).toEqual([0, expect.stringContaining('conformance')]);
  });

  it('prints the version of the package', async () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      version: string;
    };

    expect(await commandLine('--version')).toEqual({ code: 0, stdout: `${version}\n`, stderr: '' });
  });

  it('requires a command', async () => {
    const { code, stderr } = await commandLine();

    expect([code, stderr]).toEqual([2, expect.stringContaining('Usage:')]);
  });

  it.each(['conform', '--verbose', '__proto__'])('refuses the unknown command %s', async (name) => {
    const { code, stdout, stderr } = await commandLine(name);

    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain(`"${name}"`);
    expect(stderr).toContain('--help');
  });

  it('prints the help of a command', async () => {
    const { code, stdout } = await commandLine('conformance', '--help');

    expect([code, stdout]).toEqual([0, expect.stringContaining('--secret-file')]);
  });
});

it('offers --json with every command that has a result', async () => {
  const { stdout } = await commandLine('--help');
  const commands = [...stdout.matchAll(/^ {2}(\w+) {2,}/gm)].map(([, name]) => name!);
  const without: string[] = [];
  for (const name of commands) {
    const help = await commandLine(name, '--help');
    if (!/^ {2}--json /m.test(help.stdout)) without.push(name);
  }

  expect(commands).toContain('listen');
  expect(without).toEqual(['completion']);
});

describe('the command conformance', () => {
  const good = (): string[] => [url, '--issuer', ISSUER];

  it.each<[string, string[], Record<string, string>, RegExp]>([
    ['no URL', ['--issuer', ISSUER], { WEBHOOK_SECRET: SECRET }, /Pass the URL/],
    [
      'two URLs',
      ['http://localhost', 'http://localhost', '--issuer', 'a'],
      { WEBHOOK_SECRET: SECRET },
      /Pass one URL/,
    ],
    [
      'a URL without a scheme',
      ['localhost:3000', '--issuer', ISSUER],
      { WEBHOOK_SECRET: SECRET },
      /https:\/\//,
    ],
    [
      'http to another host',
      ['http://crm.example/in', '--issuer', ISSUER],
      { WEBHOOK_SECRET: SECRET },
      /--allow-http/,
    ],
    ['no issuer', ['http://localhost'], { WEBHOOK_SECRET: SECRET }, /--issuer is required/],
    ['no key', ['http://localhost', '--issuer', ISSUER], {}, /WEBHOOK_SECRET/],
    [
      'a short secret',
      ['http://localhost', '--issuer', ISSUER],
      { WEBHOOK_SECRET: 'short-one' },
      /at least 32/,
    ],
    [
      'two keys',
      ['http://localhost', '--issuer', ISSUER, '--secret-file', 'x', '--key', 'x'],
      {},
      /Pass only one of/,
    ],
    [
      'a missing file',
      ['http://localhost', '--issuer', ISSUER, '--secret-file', 'no/such'],
      {},
      /cannot be read/,
    ],
    ['an unknown option', ['http://localhost', '--isuer', ISSUER], {}, /--isuer is unknown/],
    ['an option without its value', ['http://localhost', '--issuer'], {}, /--issuer needs a value/],
    [
      'an unknown profile',
      ['http://localhost', '--issuer', ISSUER, '--profile', 'x'],
      { WEBHOOK_SECRET: SECRET },
      /--profile must be/,
    ],
    [
      'an unknown group',
      ['http://localhost', '--issuer', ISSUER, '--only', 'x'],
      { WEBHOOK_SECRET: SECRET },
      /--only must be/,
    ],
    [
      'an unknown alg',
      ['http://localhost', '--issuer', ISSUER, '--alg', 'HS1'],
      { WEBHOOK_SECRET: SECRET },
      /alg must be one of/,
    ],
    [
      'an invalid event name',
      ['http://localhost', '--issuer', ISSUER, '--event', 'x'],
      { WEBHOOK_SECRET: SECRET },
      /--event/,
    ],
    [
      'a timeout that is not a duration',
      ['http://localhost', '--issuer', ISSUER, '--timeout', 'long'],
      { WEBHOOK_SECRET: SECRET },
      /--timeout/,
    ],
    [
      'a timeout that a timer cannot measure',
      ['http://localhost', '--issuer', ISSUER, '--timeout', '25d'],
      { WEBHOOK_SECRET: SECRET },
      /at most 24d/,
    ],
  ])('refuses %s and says what to do', async (_, args, env, remedy) => {
    const { code, stdout, stderr } = await conformance(args, env);

    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(remedy);
    expect(stderr).not.toContain('short-one');
  });

  it('reports all errors at once', async () => {
    const { stderr } = await conformance(['--profile', 'x'], {});

    for (const problem of ['Pass the URL', 'A key is required', '--issuer', '--profile']) {
      expect(stderr).toContain(problem);
    }
  });

  it('prints every probe, and neither secret nor token', async () => {
    const { code, stdout, stderr } = await conformance([...good(), '--only', 'token']);

    expect(code).toBe(0);
    expect(stdout).toMatch(/^pass +token\.expired +expired an hour ago$/m);
    expect(stdout).toMatch(/probes: \d+ pass/);
    expect(stdout).toMatch(/Clock of the receiver: /);
    expect(`${stdout}${stderr}`).not.toContain(SECRET);
    expect(`${stdout}${stderr}`).not.toMatch(/eyJ/);
  });

  it('takes the secret from a file, without the newline at its end', async () => {
    const path = join(folder, 'secret');
    await writeFile(path, `${SECRET}\n`);

    const args = [...good(), '--secret-file', path, '--only', 'replay'];
    expect((await conformance(args, {})).code).toBe(0);
  });

  it('stops if a valid event is refused, and says what to check', async () => {
    const other = 'another-secret-of-32-bytes-or-more-0002';
    const { code, stdout, stderr } = await conformance(good(), { WEBHOOK_SECRET: other });

    expect(code).toBe(1);
    expect(stdout).toContain('refused with 401 (bad_signature)');
    expect(stdout).toContain('1 probe: 1 fail');
    expect(stderr).toMatch(/with Bearer realm="webhooks", error="invalid_token"/);
    expect(stderr).toMatch(/Check URL, secret, issuer/);
    expect(stderr).not.toContain(other);
  });

  it('reports a refused connection', async () => {
    const url = `http://127.0.0.1:${await freePort()}/`;

    const { code, stderr } = await conformance([url, '--issuer', ISSUER]);
    expect([code, stderr]).toEqual([3, expect.stringContaining('ECONNREFUSED')]);
  });

  it('reports a timeout', async () => {
    const server = createServer(() => undefined);
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const args = [`http://127.0.0.1:${port}/`, '--issuer', ISSUER, '--timeout', '100ms'];

    const { code, stderr } = await conformance(args);
    expect([code, stderr]).toEqual([3, expect.stringContaining('no answer arrived in time')]);
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  it('prints neither a token that the receiver echoes nor control characters', async () => {
    const server = createServer(({ headers }, response) => {
      const words = `Bearer error="\u009b31m${headers.authorization}"`;
      response.writeHead(401, { 'WWW-Authenticate': words }).end();
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const args = [`http://127.0.0.1:${port}/`, '--issuer', ISSUER];

    const { code, stdout, stderr } = await conformance(args);
    expect([code, stderr]).toEqual([1, expect.stringContaining('Bearer [token]')]);
    expect(`${stdout}${stderr}`).not.toMatch(/eyJ|\u009b/);
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  it('trusts a custom certificate authority', async () => {
    const certificates = join(ROOT, 'test/egress/certificates');
    const cert = readFileSync(join(certificates, 'hooks.test.cert.pem'), 'utf8');
    const key = readFileSync(join(certificates, 'hooks.test.key.pem'), 'utf8');
    const { app: secure, port } = await startApp(new ExpressAdapter(), {
      nest: { httpsOptions: { key, cert } },
    });
    const path = join(folder, 'ca.pem');
    await writeFile(path, cert);
    const target = `https://127.0.0.1:${port}${PATH}`;
    try {
      const trusted = await report(target, '--insecure-ca', path, '--only', 'http');
      expect([trusted.code, trusted.report.totals.warn]).toEqual([0, 0]);

      const { code, stderr } = await conformance([target, '--issuer', ISSUER]);
      expect([code, stderr]).toEqual([3, expect.stringContaining('SELF_SIGNED')]);
    } finally {
      await secure.close();
    }
  });

  it('reports the clock difference of the receiver', async () => {
    const server = createServer((_request, response) => {
      response.writeHead(401, { Date: new Date(Date.now() + 600_000).toUTCString() }).end();
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;

    const { code, stdout, stderr } = await conformance([
      `http://127.0.0.1:${port}/`,
      '--issuer',
      ISSUER,
    ]);
    expect(code).toBe(1);
    expect(stdout).toMatch(/Clock of the receiver: (?:59|60)\d s ahead/);
    expect(stderr).toMatch(/Its clock differs by/);
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });

  it.each([
    ['ES256', 'pem'],
    ['RS256', 'pem'],
    ['EdDSA', 'pem'],
    ['ES256', 'jwk'],
    ['EdDSA', 'jwk'],
  ] as const)('signs with a key of %s as %s', async (alg, format) => {
    const { publicKey, privateKey } = keyPair(alg);
    const path = join(folder, `${alg}.${format}`);
    const content =
      format === 'jwk'
        ? JSON.stringify(privateKey.export({ format }))
        : privateKey.export({ type: 'pkcs8', format });
    await writeFile(path, content);
    const issuers = [{ issuer: ISSUER, keys: [{ kid: 'k1', alg, key: publicKey }] }];
    const started = await startApp(new ExpressAdapter(), {
      options: { receiver: { path: 'webhooks', issuers } },
    });
    try {
      const { code, report: found } = await report(
        `${started.origin}${PATH}`,
        '--key',
        path,
        '--alg',
        alg,
        '--kid',
        'k1',
      );

      expect(found.probes.filter(({ verdict }) => !['pass', 'skipped'].includes(verdict))).toEqual(
        [],
      );
      expect(code).toBe(0);
      const asked = found.probes.filter(({ verdict }) => verdict === 'pass').map(({ id }) => id);
      expect(asked).toEqual(
        expect.arrayContaining(['token.alg-confusion', 'token.kid-unknown', 'accepts.no-kid']),
      );
    } finally {
      await started.app.close();
    }
  });

  it('signs with a secret as a JWK', async () => {
    const path = join(folder, 'secret.jwk');
    const k = Buffer.from(SECRET).toString('base64url');
    await writeFile(path, JSON.stringify({ kty: 'oct', k }));

    const args = [...good(), '--key', path, '--only', 'replay'];
    expect((await conformance(args, {})).code).toBe(0);
  });
});

function keyPair(alg: 'ES256' | 'RS256' | 'EdDSA'): ReturnType<typeof generateKeyPairSync> {
  switch (alg) {
    case 'ES256':
      return generateKeyPairSync('ec', { namedCurve: 'P-256' });
    case 'RS256':
      return generateKeyPairSync('rsa', { modulusLength: 2_048 });
    case 'EdDSA':
      return generateKeyPairSync('ed25519');
  }
}

describe('the built program', () => {
  const main = join(ROOT, 'dist/cli/main.js');

  function program(args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
    const env = { ...process.env, WEBHOOK_SECRET: SECRET };
    return new Promise((done) => {
      execFile(process.execPath, [main, ...args], { env }, (error, stdout, stderr) => {
        done({ code: typeof error?.code === 'number' ? error.code : 0, stdout, stderr });
      });
    });
  }

  it('ends with the exit code of its command', async () => {
    expect(await program(['conformance', url, '--issuer', ISSUER])).toMatchObject({ code: 0 });
    expect(
      await program(['conformance', url, '--issuer', 'https://untrusted.example']),
    ).toMatchObject({ code: 1 });
    expect(await program(['conformance', url])).toMatchObject({ code: 2 });
    expect(await program(['conformance', 'http://127.0.0.1:1', '--issuer', ISSUER])).toMatchObject({
      code: 3,
    });
  });

  it('prints complete JSON', async () => {
    const { stdout } = await program(['conformance', url, '--issuer', ISSUER, '--json']);
    const found = JSON.parse(stdout) as Report;

    expect(found).toMatchObject({ end: 'complete', profile: 'webhook-token' });
    expect(found.probes.map(({ id }) => id)).toEqual(
      probesFor('webhook-token').map(({ id }) => id),
    );
  });

  it('ends quietly if its output is not read', async () => {
    const child = spawn(process.execPath, [main, 'sql'], { stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout.destroy();
    let stderr = '';
    child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
    const [code] = (await once(child, 'close')) as [number];

    expect([code, stderr]).toEqual([141, '']);
  });

  const sending = ['send', 'http://127.0.0.1:1', 'order.created', '--issuer', ISSUER];

  it.each<[string, string[], string, number, string]>([
    ['output', ['keygen'], '1', 2, 'The output cannot be written (ENOSPC).\n'],
    ['messages', sending, '2', 3, ''],
    ['output and messages', ['keygen'], '12', 2, ''],
  ])('reports a full disk for its %s by its exit code', async (_, args, full, code, message) => {
    const device = await open('/dev/full', 'w');
    const streams = ['1', '2'].map((stream) => (full.includes(stream) ? device.fd : 'pipe'));
    const child = spawn(process.execPath, [main, ...args], {
      stdio: ['ignore', ...streams],
      env: { ...process.env, WEBHOOK_SECRET: SECRET },
    });
    let stderr = '';
    child.stderr?.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
    const [ended] = (await once(child, 'close')) as [number];
    await device.close();

    expect([ended, stderr]).toEqual([code, message]);
  });

  it('keeps its exit code if its messages are not read', async () => {
    const child = spawn(process.execPath, [main, ...sending], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, WEBHOOK_SECRET: SECRET },
    });
    child.stderr.destroy();

    expect(await once(child, 'close')).toEqual([3, null]);
  });

  it('is the bin of package.json and has a shebang', () => {
    const { bin } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as {
      bin: Record<string, string>;
    };

    expect(join(ROOT, bin['nestjs-webhook-token']!)).toBe(main);
    expect(readFileSync(main, 'utf8').split('\n')[0]).toBe('#!/usr/bin/env node');
  });
});
