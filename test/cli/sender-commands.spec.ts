import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Injectable } from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';
import { runCommandLine } from '../../lib/cli/command-line.js';
import { OnWebhookEvent, type WebhookExplanation } from '../../lib/index.js';
import { stripe } from '../../lib/senders/index.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { Sink } from './conformance-run.js';

const SECRET = 'whsec_c2VjcmV0LW9mLWEtc2VuZGVyLW9mLWV2ZW50cw==';

@Injectable()
class Handlers {
  readonly seen: unknown[] = [];

  @OnWebhookEvent('**')
  on(data: unknown): void {
    this.seen.push(data);
  }
}

let receiver: StartedApp;
let folder: string;
beforeAll(async () => {
  receiver = await startApp(new ExpressAdapter(), {
    options: { receiver: { path: 'stripe', sender: stripe({ secret: SECRET }) } },
    providers: [Handlers],
  });
  folder = await mkdtemp(join(tmpdir(), 'webhook-sender-commands-'));
});
afterAll(async () => {
  await receiver.app.close();
  await rm(folder, { recursive: true });
});

async function commandLine(
  args: readonly string[],
  stdin = '',
  env: Record<string, string> = { WEBHOOK_SECRET: SECRET },
): Promise<{ code: number; out: string; err: string }> {
  const [stdout, stderr] = [new Sink(), new Sink()];
  const io = { stdin: Readable.from([Buffer.from(stdin)]), stdout, stderr, env };
  const code = await runCommandLine(args, io);
  expect(stdout.text + stderr.text).not.toContain(SECRET);
  return { code, out: stdout.text, err: stderr.text };
}

const SENDERS = [
  ['standard-webhooks', 'user.created', '{"id":"u1"}'],
  ['stripe', 'invoice.paid', '{"data":{}}'],
  ['github', 'issues.opened', '{}'],
  ['slack', 'app_mention', '{}'],
  ['shopify', 'orders.create', '{"id":1}'],
  ['zoom', 'meeting.started', '{}'],
  ['paddle', 'transaction.completed', '{}'],
  ['lemon-squeezy', 'order_created', '{}'],
] as const;

describe('--sender', () => {
  it.each(SENDERS)('signs as %s, and verifies that', async (sender, event, data) => {
    const signed = await commandLine(['sign', event, data, '--sender', sender]);
    const verified = await commandLine(['verify', '--sender', sender], signed.out);
    const changed = await commandLine(
      ['verify', '--sender', sender, '--json'],
      signed.out.replace(/\}\s*$/, ',"x":1}'),
    );

    expect([signed.code, verified.code, changed.code]).toEqual([0, 0, 1]);
    expect(verified.out).toMatch(new RegExp(`^valid\n${event} \\S+\n$`));
    expect(JSON.parse(changed.out)).toMatchObject({ verified: false, code: 'invalid_signature' });
  });

  it('reads a captured request of a file, and the time of the receiver', async () => {
    const file = join(folder, 'request.http');
    const { out } = await commandLine(['sign', 'invoice.paid', '{}', '--sender', 'stripe']);
    await writeFile(file, out);
    const verify = ['verify', file, '--sender', 'stripe', '--json'];
    const now = await commandLine(verify);
    const late = await commandLine([...verify, '--now', '2030-01-01T00:00:00Z']);

    expect(JSON.parse(now.out)).toMatchObject({ verified: true, event: 'invoice.paid' });
    expect(JSON.parse(late.out)).toMatchObject({ code: 'timestamp_out_of_tolerance' });
  });

  it('gives hints for a request that is not valid', async () => {
    const { out } = await commandLine(['sign', 'invoice.paid', '{}', '--sender', 'stripe']);
    const verify = ['verify', '--sender', 'stripe'];
    const reordered = out.replace(/\{.*\}\s*$/, (body) =>
      JSON.stringify(JSON.parse(body), undefined, 2),
    );
    const text = await commandLine(verify, reordered);
    const json = await commandLine([...verify, '--json'], reordered);
    const { hints } = JSON.parse(json.out) as { hints: { code: string }[] };

    expect(text.code).toBe(1);
    expect(text.out).toMatch(/^not valid: invalid_signature\n {2}\S.*\n\nhints\n {2}\w+ /);
    expect(hints.map((hint) => hint.code)).toContain('body_reserialized');
  });

  it('skips the definitions of events, which it does not know', async () => {
    const { out } = await commandLine(['sign', 'invoice.paid', '{}', '--sender', 'stripe']);
    const explained = await commandLine(['explain', '--sender', 'stripe', '--json'], out);
    const { verdict, steps } = JSON.parse(explained.out) as WebhookExplanation;

    expect(verdict).toBe('accepted');
    expect(steps).toContainEqual({
      step: 'definition',
      outcome: 'skipped',
      detail: 'no definitions of events are known here',
    });
  });

  it('sends as Stripe, and shows the answer', async () => {
    const url = `${receiver.origin}/stripe`;
    const send = [
      'send',
      url,
      'invoice.paid',
      '{"data":{"object":{"id":"in_1"}}}',
      '--id',
      'evt_1',
    ];
    const first = await commandLine([...send, '--sender', 'stripe']);
    const copy = await commandLine([...send, '--sender', 'stripe']);

    expect([first.code, copy.code]).toEqual([0, 0]);
    expect(first.out).toMatch(/200 acknowledged \(/);
    expect(first.out).not.toContain('Bearer');
    expect(copy.out).toMatch(/as a duplicate/);
    expect(receiver.app.get(Handlers).seen).toEqual([
      expect.objectContaining({ id: 'evt_1', type: 'invoice.paid' }),
    ]);
  });

  it('says that another secret is the reason of a refusal', async () => {
    const args = ['send', `${receiver.origin}/stripe`, 'invoice.paid', '{}', '--sender', 'stripe'];
    const { code, out } = await commandLine(args, '', { WEBHOOK_SECRET: 'whsec_other' });

    expect(code).toBe(1);
    expect(out).toMatch(/401 refused: invalid_signature/);
  });

  it.each<[string, string[], Record<string, string>, RegExp]>([
    ['an unknown sender', ['--sender', 'strip'], {}, /--sender must be one of .*stripe/],
    ['no secret', ['--sender', 'stripe'], { WEBHOOK_SECRET: '' }, /WEBHOOK_SECRET/],
    [
      'a secret of another form',
      ['--sender', 'standard-webhooks'],
      { WEBHOOK_SECRET: 'not base64!' },
      /whsec_/,
    ],
  ])('refuses %s', async (_, args, env, message) => {
    const { code, err } = await commandLine(['sign', 'a.b', '{}', ...args], '', env);

    expect(code).toBe(2);
    expect(err).toMatch(message);
  });

  it.each([
    ['sign', '--method', 'POST'],
    ['sign', '--profile', 'swt-draft-02'],
    ['sign', '--audience', 'https://crm.example'],
    ['sign', '--lifetime', '90'],
    ['verify', '--issuer', 'https://shop.example'],
    ['explain', '--audience', 'https://crm.example'],
  ])('refuses %s with %s, which only applies to tokens', async (command, option, value) => {
    const event = command === 'sign' ? ['a.b', '{}'] : [];
    const args = [command, ...event, '--sender', 'stripe', option, value];

    expect(await commandLine(args)).toMatchObject({
      code: 2,
      err: expect.stringContaining(`${option} only applies to tokens`),
    });
  });

  it.each([
    ['stripe', '[1]'],
    ['stripe', 'null'],
    ['github', '"str"'],
    ['slack', '5'],
    ['slack', '{"event":"str"}'],
    ['zoom', 'true'],
    ['paddle', '[]'],
    ['lemon-squeezy', '{"meta":[1]}'],
  ])('refuses data that an event of %s cannot contain: %s', async (sender, data) => {
    const { code, out, err } = await commandLine([
      'sign',
      'issues.opened',
      data,
      '--sender',
      sender,
    ]);

    expect([code, out]).toEqual([2, '']);
    expect(err).toMatch(/data(?:\.\w+)?: must be an object/);
  });

  it('signs an event of a sender without data', async () => {
    const { code, out } = await commandLine(['sign', 'invoice.paid', '--sender', 'stripe']);

    expect([code, out]).toEqual([0, expect.stringContaining('"type":"invoice.paid"')]);
  });

  it('refuses data that names another event', async () => {
    const args = ['sign', 'invoice.paid', '{"type":"invoice.made"}', '--sender', 'stripe'];

    expect(await commandLine(args)).toMatchObject({ code: 2, err: expect.stringMatching(/name/) });
  });
});

it('explains a captured request of a sender', async () => {
  const { out } = await commandLine([
    'sign',
    'invoice.paid',
    '{"data":{}}',
    '--sender',
    'stripe',
    '--json',
  ]);
  const request = JSON.parse(out) as { headers: Record<string, string>; body: string };
  const late = new Date(Date.now() + 400_000).toISOString();
  const capture = JSON.stringify({ method: 'POST', ...request });
  const accepted = await commandLine(['explain', '--sender', 'stripe'], capture);
  const refused = await commandLine(['explain', '--sender', 'stripe', '--now', late], capture);

  expect([accepted.code, refused.code]).toEqual([0, 1]);
  expect(accepted.out).toMatch(/^accepted/);
  expect(refused.out).toMatch(/^refused: timestamp_out_of_tolerance \(401\)[^]*clock_behind/);
});
