import { describe, expect, it } from '@jest/globals';
import { createHmac, generateKeyPairSync } from 'node:crypto';
import { defineEvents, WebhookInbox } from 'nestjs-webhook-token';
import type {
  WebhookExplanation,
  WebhookReceiverOptions,
  WebhookRequestLike,
} from 'nestjs-webhook-token';
import {
  a2a,
  auth0,
  github,
  jwtSender,
  securityEvents,
  shopify,
  slack,
  standardWebhooks,
  stripe,
  type WebhookSender,
} from 'nestjs-webhook-token/senders';
import { TestClock } from 'nestjs-webhook-token/testing';
import { z } from 'zod';
import { adapters } from '../fixtures/adapters.js';
import { send } from '../fixtures/http-client.js';
import { startApp } from '../fixtures/receiver-app.js';
import { type TestVerifier, verifierFor } from '../fixtures/verifier-for.js';
import { ISSUER, NOW, SECRET as TOKEN_SECRET, tokenOf } from './receiver-bench.js';

const SECRET = 'whsec_c2VjcmV0LW9mLWEtc2VuZGVyLW9mLWV2ZW50cw==';
const OTHER = 'whsec_YW5vdGhlci1zZWNyZXQtb2YtdGhlLXNlbmRlcg==';
const MARKER = 'CUSTOMER-4711';
const BODY = `{"id":"evt_1","type":"invoice.paid","of":"${MARKER}"}`;
const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 });
const keys = [{ kid: 'k1', alg: 'RS256', key: rsa.publicKey }] as const;
const signingKey = { kid: 'k1', alg: 'RS256', key: rsa.privateKey } as const;

function verifierOf(...receivers: readonly WebhookReceiverOptions[]): TestVerifier {
  return verifierFor(receivers, new TestClock(NOW));
}

async function explain(
  sender: WebhookSender,
  request: Partial<WebhookRequestLike>,
): Promise<WebhookExplanation> {
  const verifier = verifierOf({ path: 'x', sender });
  const explanation = await verifier.explain({ method: 'POST', headers: {}, ...request });
  const shown = JSON.stringify(explanation);
  for (const hidden of [SECRET, SECRET.slice(6), OTHER, MARKER])
    expect(shown).not.toContain(hidden);
  const failed = explanation.steps.filter(({ outcome }) => outcome === 'failed');
  expect(failed).toHaveLength(explanation.verdict === 'refused' ? 1 : 0);
  return explanation;
}

const hintsOf = ({ hints }: WebhookExplanation): string[] =>
  hints.map(({ code, detail }) => `${code}: ${detail}`);
const stepOf = ({ steps }: WebhookExplanation): string | undefined =>
  steps.find(({ outcome }) => outcome === 'failed')?.step;

const seconds = NOW / 1_000;
const hmac = (
  signed: string,
  secret: string | Buffer = SECRET,
  encoding: 'hex' | 'base64' | 'base64url' = 'hex',
  algorithm = 'sha256',
): string => createHmac(algorithm, secret).update(signed).digest(encoding);
const stripeRequest = (
  signature: string,
  body = BODY,
  time: number | string = seconds,
): WebhookRequestLike => ({
  method: 'POST',
  headers: { 'content-type': 'application/json', 'stripe-signature': `t=${time},v1=${signature}` },
  body,
});
const signedAt = (time: number): string => hmac(`${time}.${BODY}`);

describe('explains an HMAC sender', () => {
  const sender = stripe({ secret: [OTHER, SECRET] });

  it('that is accepted', async () => {
    const explanation = await explain(
      sender,
      stripeRequest(signedAt(seconds - 10), BODY, seconds - 10),
    );

    expect(explanation).toMatchObject({ verdict: 'accepted', hints: [] });
    expect(explanation.steps.map(({ detail }) => detail)).toEqual(
      expect.arrayContaining(['signed 10 s ago, tolerance 300 s', '"invoice.paid", id "evt_1"']),
    );
  });

  it.each([
    ['defined', { schema: z.object({ id: z.string() }) }, 'passed', 'valid data of "invoice.paid"'],
    ['only named', {}, 'skipped', 'no definition checks the data of "invoice.paid"'],
  ])('whose event is %s', async (_, definition, outcome, detail) => {
    const events = defineEvents({ 'invoice.paid': definition });
    const verifier = verifierFor([{ path: 'x', sender }], new TestClock(NOW), events);
    const { steps } = await verifier.explain(stripeRequest(signedAt(seconds)));

    expect(steps).toContainEqual({
      step: 'definition',
      outcome,
      detail: expect.stringContaining(detail),
    });
  });

  it('whose request only checks the URL', async () => {
    const events = defineEvents({ app_mention: {} });
    const slackSender = slack({ secret: SECRET });
    const verifier = verifierFor([{ path: 'x', sender: slackSender }], new TestClock(NOW), events);
    const body = '{"type":"url_verification","challenge":"c1"}';
    const headers = {
      'x-slack-request-timestamp': `${seconds}`,
      'x-slack-signature': `v0=${hmac(`v0:${seconds}:${body}`)}`,
    };
    const { verdict, steps } = await verifier.explain({ method: 'POST', headers, body });

    expect(verdict).toBe('accepted');
    expect(steps).toContainEqual({
      step: 'definition',
      outcome: 'skipped',
      detail: 'the request contains no event',
    });
  });

  it('without its id, although its signature is there', async () => {
    const explanation = await explain(standardWebhooks({ secret: SECRET }), {
      headers: { 'webhook-signature': 'v1,x', 'webhook-timestamp': '1' },
      body: '{}',
    });

    expect(explanation.code).toBe('missing_signature');
    expect(hintsOf(explanation)).toEqual([]);
  });

  it('without its header', async () => {
    const explanation = await explain(sender, { headers: {}, body: BODY });

    expect(stepOf(explanation)).toBe('authorization');
    expect(explanation).toMatchObject({ code: 'missing_signature', status: 401 });
    expect(hintsOf(explanation)).toEqual([
      expect.stringMatching(/^signature_missing: this receiver expects stripe-signature: /),
    ]);
  });

  it('with the header of another sender', async () => {
    const headers = { 'x-hub-signature-256': 'sha256=00', 'x-github-event': 'push' };
    const explanation = await explain(sender, { headers, body: BODY });

    expect(hintsOf(explanation)[0]).toMatch(/expects stripe-signature, but .* x-hub-signature-256/);
  });

  it.each([
    [-412, 'clock_behind', /signed 412 s ago, 112 s more than the tolerance of 300 s/],
    [305, 'clock_ahead', /signed 305 s ahead, 5 s more than the tolerance of 300 s/],
  ])('with a time that is %i s away', async (away, code, detail) => {
    const time = seconds + away;
    const explanation = await explain(sender, stripeRequest(signedAt(time), BODY, time));

    expect(stepOf(explanation)).toBe('times');
    expect(hintsOf(explanation)).toEqual([expect.stringMatching(detail)]);
    expect(explanation.hints[0]!.code).toBe(code);
  });

  it('with a time in milliseconds', async () => {
    const explanation = await explain(sender, stripeRequest(signedAt(NOW), BODY, NOW));

    expect(hintsOf(explanation)).toEqual([expect.stringMatching(/^milliseconds/)]);
  });

  it.each<[string, WebhookRequestLike, RegExp]>([
    [
      'a body that was re-serialised',
      stripeRequest(signedAt(seconds), JSON.stringify(JSON.parse(BODY), undefined, 2)),
      /^body_reserialized: the signature is that of the same JSON without white space/,
    ],
    [
      'a body that gained a line feed',
      stripeRequest(signedAt(seconds), `${BODY}\n`),
      /^body_newline: .*without the line feed/,
    ],
    [
      'a body that lost a line feed',
      stripeRequest(hmac(`${seconds}.${BODY}\n`)),
      /^body_newline: .*with a line feed/,
    ],
    [
      'base64',
      stripeRequest(hmac(`${seconds}.${BODY}`, SECRET, 'base64')),
      /^signature_encoding: .*base64/,
    ],
    [
      'upper case',
      stripeRequest(signedAt(seconds).toUpperCase()),
      /^signature_encoding: .*upper case/,
    ],
    [
      'SHA-512',
      stripeRequest(hmac(`${seconds}.${BODY}`, SECRET, 'hex', 'sha512')),
      /^signature_algorithm: .*sha512/,
    ],
    ['the body alone', stripeRequest(hmac(BODY)), /^signed_content: .*only the body/],
    [
      'a secret with a line feed',
      stripeRequest(hmac(`${seconds}.${BODY}`, `${SECRET}\n`)),
      /^secret_form: .*line feed is added to the end/,
    ],
  ])('that signed %s', async (_case, request, hint) => {
    const explanation = await explain(sender, request);

    expect(stepOf(explanation)).toBe('signature');
    expect(hintsOf(explanation)).toEqual([
      'signature_age: signed 0 s ago (unverified)',
      expect.stringMatching(hint),
    ]);
  });

  it('with no known mistake', async () => {
    const explanation = await explain(sender, stripeRequest(hmac('x', 'y')));

    expect(explanation.hints.map(({ code }) => code)).toEqual(['signature_age']);
  });

  it('whose secret is that of another receiver', async () => {
    const verifier = verifierOf(
      { name: 'live', path: 'live', sender: stripe({ secret: OTHER }) },
      { name: 'test', path: 'test', sender: stripe({ secret: SECRET }) },
      { name: 'git', path: 'git', sender: github({ secret: SECRET }) },
    );
    const explanation = await verifier.explain(stripeRequest(signedAt(seconds)), {
      receiver: 'live',
    });

    expect(hintsOf(explanation).at(-1)).toMatch(/^other_receiver: .* receiver "test"/);
  });

  it('of base64 that was sent in hex', async () => {
    const explanation = await explain(shopify({ secret: SECRET }), {
      headers: { 'x-shopify-hmac-sha256': hmac(BODY), 'x-shopify-topic': 'orders/create' },
      body: BODY,
    });

    expect(hintsOf(explanation)).toEqual([expect.stringMatching(/^signature_encoding: .* hex/)]);
  });

  it('whose body cannot be used', async () => {
    const headers = {
      'x-hub-signature-256': `sha256=${hmac('{')}`,
      'x-github-event': 'push',
      'content-type': 'application/json',
    };
    const explanation = await explain(github({ secret: SECRET }), { headers, body: '{' });

    expect([stepOf(explanation), explanation.code]).toEqual(['payload', 'invalid_payload']);
  });
});

describe('explains Standard Webhooks', () => {
  const sender = standardWebhooks({ secret: SECRET });
  const bytes = Buffer.from(SECRET.slice(6), 'base64');
  const request = (signature: string, more = {}): WebhookRequestLike => ({
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'webhook-id': 'msg_1',
      'webhook-timestamp': String(seconds),
      'webhook-signature': `v1,${signature}`,
      ...more,
    },
    body: BODY,
  });
  const signed = `msg_1.${seconds}.${BODY}`;

  it.each<[string, WebhookRequestLike, RegExp]>([
    [
      'the secret as text',
      request(hmac(signed, SECRET, 'base64')),
      /^secret_form: .*itself is used/,
    ],
    ['in hex', request(hmac(signed, bytes)), /^signature_encoding: .*hex/],
    [
      'another id',
      request(hmac(`msg_2.${seconds}.${BODY}`, bytes, 'base64'), { 'svix-id': 'msg_2' }),
      /^signed_content: .*another id/,
    ],
    [
      'no id',
      request(hmac(`${seconds}.${BODY}`, bytes, 'base64')),
      /^signed_content: .*time and the body/,
    ],
    ['the body alone', request(hmac(BODY, bytes, 'base64')), /^signed_content: .*only the body/],
    [
      'another body',
      request(hmac(`msg_1.${seconds}.${BODY}\r\n`, bytes, 'base64')),
      /^body_newline: .*carriage return/,
    ],
  ])('that signed %s', async (_case, given, hint) => {
    const explanation = await explain(sender, given);

    expect(stepOf(explanation)).toBe('signature');
    expect(hintsOf(explanation).at(-1)).toMatch(hint);
  });

  it('names the header that is missing', async () => {
    const { 'webhook-signature': _, ...headers } = request('x').headers as Record<string, string>;
    const explanation = await explain(sender, { headers, body: BODY });

    expect(hintsOf(explanation)[0]).toMatch(/expects webhook-signature or svix-signature/);
  });
});

describe('explains a JSON Web Token', () => {
  const options = { issuer: 'https://agent.example', audience: 'client' };
  const acme = (more: object): WebhookSender =>
    jwtSender({
      ...options,
      name: 'acme',
      digest: { claim: 'sum' },
      event: ({ data }) => (data as { type: string }).type,
      ...more,
    });
  const from = async (sender: WebhookSender, ahead = 0): Promise<WebhookRequestLike> => {
    const data = JSON.parse(BODY) as object;
    const signed = await sender.sign({ event: 'invoice.paid', data, now: NOW + ahead * 1_000 });
    return { method: 'POST', ...signed };
  };

  it.each<[string, () => Promise<WebhookRequestLike>, string, RegExp]>([
    [
      'of another issuer',
      () => from(acme({ signingKey, issuer: 'https://x.example' })),
      'issuer',
      /^issuer_unknown: iss is "https:\/\/x.example".*"https:\/\/agent.example"/,
    ],
    [
      'for another audience',
      () => from(acme({ signingKey, audience: 'y' })),
      'audience',
      /^audience: the token is for "y"; this receiver is "client"/,
    ],
    [
      'that has expired',
      () => from(acme({ signingKey }), -500),
      'times',
      /^token_age: issued 500 s ago, expired 200 s ago; the clock tolerance is 60 s/,
    ],
    [
      'of the future',
      () => from(acme({ signingKey }), 90),
      'times',
      /^token_age: issued 90 s ahead/,
    ],
    [
      'with an unknown key',
      () => from(acme({ signingKey: { ...signingKey, kid: 'k2' } })),
      'key',
      /^kid_unknown: kid is "k2"/,
    ],
    [
      'with another body',
      async () => ({ ...(await from(acme({ signingKey }))), body: `${BODY}\n` }),
      'body-digest',
      /^body_newline: the signature is that of the body without the line feed/,
    ],
    [
      'in another header',
      async () => ({ method: 'POST', headers: { 'x-forwarded-authorization': 'Bearer x' } }),
      'authorization',
      /^authorization_moved/,
    ],
  ])('%s', async (_case, request, step, hint) => {
    const explanation = await explain(acme({ keys }), await request());

    expect(stepOf(explanation)).toBe(step);
    expect(hintsOf(explanation)[0]).toMatch(hint);
  });

  it('that is accepted', async () => {
    const explanation = await explain(acme({ keys }), await from(acme({ signingKey })));

    expect(explanation.verdict).toBe('accepted');
  });

  it('in the body', async () => {
    const stream = { issuer: 'https://idp.example', audience: 'shop' };
    const { headers, body } = await securityEvents({ ...stream, signingKey }).sign({
      event: 'session-revoked',
      data: {},
      now: NOW,
    });
    const sender = securityEvents({ ...stream, audience: 'other', keys });
    const explanation = await explain(sender, { headers, body });

    expect(stepOf(explanation)).toBe('audience');
    expect(hintsOf(explanation)).toEqual([
      expect.stringMatching(/^audience: the token is for "shop"; this receiver is "other"/),
    ]);
  });

  it('of an agent without a token', async () => {
    const explanation = await explain(a2a({ ...options, keys }), { headers: {}, body: '{}' });

    expect(explanation).toMatchObject({ code: 'missing_token' });
    expect(hintsOf(explanation)[0]).toMatch(
      /^signature_missing: this receiver expects authorization/,
    );
  });
});

it('explains a static value without a guess', async () => {
  const headers = { authorization: 'wrong' };
  const explanation = await explain(auth0({ value: SECRET }), { headers, body: BODY });

  expect([stepOf(explanation), explanation.code]).toEqual(['signature', 'invalid_signature']);
  expect(explanation.hints).toEqual([]);
});

it('explains a request of which one item is no event', async () => {
  const headers = { authorization: SECRET };
  const body = JSON.stringify([{ log_id: 'l1', data: { type: 's' } }, { log_id: 'l2' }]);
  const explanation = await explain(auth0({ value: SECRET }), { headers, body });

  expect([stepOf(explanation), explanation.code]).toEqual(['payload', 'invalid_payload']);
});

describe('with issuers beside the sender', () => {
  const verifier = verifierOf({
    path: 'x',
    issuers: [{ issuer: ISSUER, secret: TOKEN_SECRET }],
    sender: standardWebhooks({ secret: SECRET }),
  });

  it('explains a token as a token', async () => {
    const headers = { authorization: `Bearer ${tokenOf({}, { ahead: -90_000_000 })}` };
    const explanation = await verifier.explain({ method: 'HEAD', headers });

    expect([stepOf(explanation), explanation.code]).toEqual(['times', 'token_expired']);
  });

  it('explains a signature as that of the sender', async () => {
    const headers = { 'webhook-signature': 'v1,x', 'webhook-id': 'a', 'webhook-timestamp': '1' };
    const explanation = await verifier.explain({ method: 'POST', headers, body: BODY });

    expect(explanation.code).toBe('timestamp_out_of_tolerance');
  });

  const opaque = 'Bearer of-a-gateway';
  const ofAnotherKey = `Bearer ${tokenOf({}).slice(0, -4)}AAAA`;
  it.each([
    ['a valid signature and the Bearer of a gateway', signedAt(seconds), opaque, undefined],
    ['a valid signature and a token of another key', signedAt(seconds), ofAnotherKey, undefined],
    ['a wrong signature and the Bearer of a gateway', 'wrong', opaque, 'invalid_signature'],
    ['no signature and a token of another key', undefined, ofAnotherKey, 'bad_signature'],
  ])('decides as the receiver does about %s', async (_, signature, authorization, code) => {
    const both = verifierOf({
      path: 'x',
      issuers: [{ issuer: ISSUER, secret: TOKEN_SECRET }],
      sender: stripe({ secret: SECRET }),
    });
    const { headers, ...rest } = stripeRequest(signature ?? '');
    const { 'stripe-signature': signed, ...others } = headers as Record<string, string>;
    const credentials = signature === undefined ? {} : { 'stripe-signature': signed! };
    const request = { ...rest, headers: { ...others, ...credentials, authorization } };
    const explanation = await both.explain(request);
    const decided = await both.verify(request).then(
      () => undefined,
      (error: { code: string }) => error.code,
    );

    expect(decided).toBe(code);
    expect([explanation.verdict, explanation.code]).toEqual([
      code === undefined ? 'accepted' : 'refused',
      code,
    ]);
  });
});

it.each(adapters)(
  'explains in the inbox, after the body is gone, on %s',
  async (_, createAdapter) => {
    const { app, origin } = await startApp(createAdapter(), {
      options: {
        receiver: { path: 'stripe', sender: stripe({ secret: SECRET }) },
        clock: new TestClock(NOW),
      },
    });
    const time = seconds - 400;
    const { headers } = stripeRequest(signedAt(time), BODY, time);
    await send(origin, { path: '/stripe', headers: headers as Record<string, string>, body: BODY });
    const inbox = app.get(WebhookInbox);
    const { entries } = await inbox.list();
    const { explanation } = (await inbox.get(entries[0]!.id))!;
    await app.close();

    expect(explanation).toMatchObject({ code: 'timestamp_out_of_tolerance' });
    expect(hintsOf(explanation as WebhookExplanation)).toEqual([
      expect.stringMatching(/100 s more than the tolerance/),
    ]);
  },
);
