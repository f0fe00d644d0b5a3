import { execFile, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Injectable } from '@nestjs/common';
import type { INestApplication } from '@nestjs/common';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { OnWebhookEvent, WebhookEvent } from 'nestjs-webhook-token';
import { ids, report } from '../cli/conformance-run.js';
import { runExplain } from '../cli/explain-run.js';
import { adapters } from '../fixtures/adapters.js';
import { OwnServer } from '../fixtures/own-server.js';
import { ISSUER, PATH, SECRET, startApp } from '../fixtures/receiver-app.js';
import { documentAt, ROOT } from './documents.js';

const FOLDER = join(ROOT, 'docs/for-partners');
const JACKSON = ['core', 'databind', 'annotations'].map(
  (part) => `/usr/share/java/jackson-${part}.jar`,
);

/** How the files of one language run. */
interface Kit {
  readonly language: string;
  /** The first of these programs that passes the check is used. */
  readonly programs: readonly string[];
  readonly check: readonly string[];
  readonly receive: (port: number) => readonly string[];
  readonly send: readonly string[];
  /** Probes that fail for the reason that the table of the page names. */
  readonly limits?: readonly string[];
}

const file = (path: string): string => join(FOLDER, path);

const KITS: readonly Kit[] = [
  {
    language: 'Python',
    programs: ['python3', '/usr/bin/python3'],
    check: ['-c', 'import jwt'],
    receive: (port) => [file('python/receive.py'), `${port}`],
    send: [file('python/send.py')],
  },
  {
    language: 'PHP',
    programs: ['php'],
    check: ['--version'],
    receive: (port) => ['-S', `127.0.0.1:${port}`, file('php/receive.php')],
    send: [file('php/send.php')],
    limits: ['http.head-with-length'],
  },
  {
    language: 'Ruby',
    programs: ['ruby'],
    check: ['-e', 'require "jwt"; require "webrick"'],
    receive: (port) => [file('ruby/receive.rb'), `${port}`],
    send: [file('ruby/send.rb')],
  },
  {
    language: 'Go',
    programs: ['go', '/usr/lib/go/bin/go'],
    check: ['version'],
    receive: (port) => ['run', file('go/receive.go'), `${port}`],
    send: ['run', file('go/send.go')],
    limits: ['sha3-256', 'sha3-384', 'sha3-512'].map((name) => `accepts.digest-${name}`),
  },
  {
    language: 'Java',
    programs: JACKSON.every((jar) => existsSync(jar)) ? ['java'] : [],
    check: ['--version'],
    receive: (port) => ['-cp', JACKSON.join(':'), file('java/Receive.java'), `${port}`],
    send: ['-cp', JACKSON.join(':'), file('java/Send.java')],
  },
  {
    language: 'Node.js',
    programs: [process.execPath],
    check: ['--version'],
    receive: (port) => [file('node/receive.mjs'), `${port}`],
    send: [file('node/send.mjs')],
  },
];

/** Recommendations that all receivers of the page follow. */
const FOLLOWED = ['accepts.data-nested', 'body.not-utf8', 'token.claims-not-utf8', 'token.zip'];

@Injectable()
class Received {
  readonly events: unknown[] = [];

  @OnWebhookEvent('**')
  on(data: unknown, { event, method }: WebhookEvent): void {
    this.events.push([event, method, data]);
  }
}

describe.each(KITS)(
  '$language, for partners',
  ({ programs, check, receive, send, limits = [] }) => {
    const program = programs.find((name) => spawnSync(name, check).status === 0);
    const test = program === undefined ? it.skip : it;
    const env = { ...process.env, WEBHOOK_SECRET: SECRET, WEBHOOK_ISSUER: ISSUER };
    if (program === undefined) {
      if (process.env['REQUIRE_SERVICES'] !== undefined) {
        throw new Error(`None of ${programs.join(', ')} runs with ${check.join(' ')}`);
      }
      process.stderr.write(
        `Skipped: none of ${programs.join(', ')} runs with ${check.join(' ')}.\n`,
      );
    }

    test('receives what the protocol requires', async () => {
      const server = await OwnServer.start({
        command: program!,
        args: (_, port) => receive(port),
        url: (port) => `http://127.0.0.1:${port}${PATH}`,
        env,
      });
      try {
        const { report: found } = await report(server.url, '--timeout', '20s');

        expect(found.end).toBe('complete');
        expect(ids(found, 'fail', 'error')).toEqual(limits);
        expect(ids(found, 'warn').filter((id) => FOLLOWED.includes(id))).toEqual([]);
      } finally {
        await server.remove();
      }
    });

    describe('sending', () => {
      let app: INestApplication;
      let url: string;
      let received: Received;
      const run = promisify(execFile);

      beforeAll(async () => {
        const started = await startApp(adapters[0]![1](), { providers: [Received] });
        ({ app } = started);
        url = `${started.origin}${PATH}`;
        received = app.get(Received);
      });
      afterAll(() => app.close());

      test('sends an object by HEAD and everything else by POST', async () => {
        for (const json of ['{"id":"o1","total":3}', '["o1","Łódź"]']) {
          await run(program!, [...send, url, 'order.created', json], { env });
        }

        expect(received.events).toEqual([
          ['order.created', 'HEAD', { id: 'o1', total: 3 }],
          ['order.created', 'POST', ['o1', 'Łódź']],
        ]);
      });

      test('sends data that serialisation makes longer', async () => {
        const events = ['П'.repeat(2_380), '😀'.repeat(1_190), '<'.repeat(4_780)].map((text) => ({
          text,
        }));
        received.events.length = 0;
        for (const data of events) {
          await run(program!, [...send, url, 'order.created', JSON.stringify(data)], { env });
        }

        expect(received.events).toEqual(
          events.map((data) => ['order.created', expect.any(String), data]),
        );
      });

      test('reports a refusal by its exit code', async () => {
        const wrong = { ...env, WEBHOOK_SECRET: 'another-secret-of-32-bytes-or-more' };

        await expect(
          run(program!, [...send, url, 'order.created', '{}'], { env: wrong }),
        ).rejects.toMatchObject({ code: 1 });
      });
    });
  },
);

describe('docs/for-partners/README.md', () => {
  const requests = documentAt('docs/for-partners/README.md')
    .blocks.filter(({ language, code }) => language === 'http' && !code.startsWith('HTTP/'))
    .map(({ code }) => ({ method: code.split(' ')[0], code }));

  it.each(requests)('shows a valid $method', async ({ code }) => {
    const [head = '', body = ''] = code.trimEnd().split('\n\n');
    const stdin = `${head.replaceAll('\n', '\r\n')}\r\n\r\n${body}`;
    const env = { WEBHOOK_SECRET: 'example-secret-of-32-bytes-or-more' };
    const args = ['--issuer', 'https://shop.example', '--now', '2025-10-09T08:53:20Z'];

    expect(await runExplain(args, { stdin, env })).toMatchObject({ exit: 0 });
  });

  it('shows both ways of sending', () => {
    expect(requests.map(({ method }) => method)).toEqual(['HEAD', 'POST']);
  });
});
