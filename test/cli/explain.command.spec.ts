import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generateKeyPairSync } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { createTokenSigner } from 'nestjs-webhook-token/token';
import { type ExplainRun, runExplain } from './explain-run.js';
import { hashOf, ISSUER, MARKER, NOW, SECRET, tokenOf } from '../explain/receiver-bench.js';

async function explain(
  args: readonly string[],
  stdin: string | Buffer = '',
  env?: Record<string, string>,
): Promise<ExplainRun> {
  const run = await runExplain(args, { stdin, env });
  for (const hidden of [SECRET, MARKER]) expect(run.out + run.err).not.toContain(hidden);
  return run;
}

const AT = ['--issuer', ISSUER, '--now', new Date(NOW).toISOString()];
const BODY = JSON.stringify({ id: 7, note: MARKER });
const TOKEN = tokenOf({ hash: hashOf(BODY) });

function http(body: string, token = TOKEN, more = ''): string {
  return `POST /webhooks HTTP/1.1\r\nHost: crm.example\r\nAuthorization: Bearer ${token}\r\nContent-Type: application/json\r\n${more}\r\n${body}`;
}

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'webhook-explain-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function file(name: string, content: string): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, content);
  return path;
}

describe('the command explain', () => {
  it.each<[string, () => string]>([
    ['raw HTTP', () => http(BODY)],
    ['raw HTTP with bare line feeds', () => http(BODY).replaceAll('\r\n', '\n')],
    [
      'chunks',
      () =>
        http(
          `${BODY.length.toString(16)}\r\n${BODY}\r\n0\r\n\r\n`,
          TOKEN,
          'Transfer-Encoding: chunked\r\n',
        ),
    ],
    ['chunks that are already joined', () => http(BODY, TOKEN, 'Transfer-Encoding: chunked\r\n')],
    [
      'JSON',
      () =>
        JSON.stringify({
          method: 'post',
          headers: { Authorization: `Bearer ${TOKEN}`, 'content-type': 'application/json' },
          body: BODY,
        }),
    ],
    [
      'JSON with base64',
      () =>
        JSON.stringify({
          method: 'POST',
          headers: { authorization: [`Bearer ${TOKEN}`] },
          bodyBase64: Buffer.from(BODY).toString('base64'),
        }),
    ],
  ])('accepts a captured request as %s', async (_, capture) => {
    const { exit, out, err } = await explain(AT, capture());

    expect([exit, err]).toEqual([0, '']);
    expect(out).toMatch(
      /^accepted\nevent "order\.created", id "[^"]+", issuer "https:\/\/shop\.example"\n\n/,
    );
    expect(out).toMatch(/^ {2}signature {6}ok {2}the signature is valid$/m);
  });

  it('prints hints and the differences from a receipt', async () => {
    const receipt = await file(
      'sent.json',
      JSON.stringify({ jti: 'another', bodyBytes: BODY.length }),
    );
    const capture = await file('request.http', http(`${BODY}\n`));
    const { exit, out } = await explain([capture, ...AT, '--receipt', receipt]);

    expect(exit).toBe(1);
    expect(out).toMatch(/^refused: hash_mismatch \(400\)\n/);
    expect(out).toMatch(/^ {2}body-digest {4}FAILED {2}the body does not match the hash/m);
    expect(out).toMatch(/^ {2}body_newline {2}the hash is that of the body without the line feed/m);
    expect(out).toMatch(/^ {2}bodyBytes {4}sent 31, received 32$/m);
    expect(out).toMatch(/^ {2}jti {10}sent "another", received "/m);
  });

  it('prints JSON', async () => {
    const { exit, out } = await explain([...AT, '--json'], http(''));

    expect(exit).toBe(1);
    expect(JSON.parse(out)).toMatchObject({
      verdict: 'refused',
      code: 'hash_mismatch',
      hints: expect.arrayContaining([expect.objectContaining({ code: 'body_dropped' })]),
      receipt: { authenticated: true, bodyBytes: 0 },
    });
  });

  it('reads a secret from a file without the line feed at its end', async () => {
    const secret = await file('secret', `${SECRET}\n`);

    expect(await explain([...AT, '--secret-file', secret], http(BODY), {})).toMatchObject({
      exit: 0,
    });
  });

  it('reads 150,000 values of one header before the test times out', async () => {
    const { exit } = await explain(AT, http(BODY, TOKEN, 'X-Tag: a\r\n'.repeat(150_000)));

    expect(exit).toBe(0);
  });

  it.each(['pem', 'jwk'] as const)('takes a public key as %s', async (form) => {
    const { publicKey, privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const text =
      form === 'pem'
        ? (publicKey.export({ type: 'spki', format: 'pem' }) as string)
        : JSON.stringify(publicKey.export({ format: 'jwk' }));
    const key = await file(`key.${form}`, text);
    const token = await createTokenSigner({
      issuer: ISSUER,
      key: { alg: 'ES256', kid: 'k1', key: privateKey },
      now: () => NOW,
    }).sign({ event: 'order.created' });

    const ended = await explain(
      [...AT, '--key', key, '--alg', 'ES256', '--kid', 'k1'],
      http('', token),
      {},
    );

    expect(ended).toMatchObject({ exit: 0, err: '' });
  });

  it.each<[string, string[], string, RegExp]>([
    ['no issuer', [], '', /--issuer https/],
    ['an unknown option', [...AT, '--secrt', SECRET], '', /--secrt/],
    ['two files', [...AT, 'a', 'b'], '', /Pass one file/],
    ['two keys', [...AT, '--secret-file', 'x', '--key', 'x'], '', /only one of --secret-file/],
    ['a secret as an argument', [...AT, '--secret', SECRET], '', /set WEBHOOK_SECRET/],
    ['a missing file', [...AT, '/nowhere/at-all'], '', /ENOENT/],
    ['no time', ['--issuer', ISSUER, '--now', 'noon'], '', /ISO 8601/],
    ['an unknown profile', [...AT, '--profile', 'v9'], '', /webhook-token/],
    ['a capture without a request line', AT, 'hello', /request line/],
    ['an invalid header line', AT, `POST / HTTP/1.1\r\n${MARKER}\r\n\r\n`, /not a header/],
    ['invalid JSON', AT, `{"x": ${MARKER}`, /not valid JSON/],
    ['JSON that is not a request', AT, '{"x": 1}', /not a request/],
    [
      'a header that is not a string',
      AT,
      '{"method": "POST", "headers": {"a": 1}}',
      /must be a string/,
    ],
    [
      'invalid base64',
      AT,
      '{"method": "POST", "headers": {}, "bodyBase64": "a b"}',
      /must be a base64/,
    ],
    [
      'a body that was parsed',
      AT,
      '{"method": "POST", "headers": {}, "body": {}}',
      /exactly as it arrived/,
    ],
  ])('refuses %s and says what to do', async (_, args, stdin, message) => {
    const { exit, out, err } = await explain(args, stdin);

    expect([exit, out]).toEqual([2, '']);
    expect(err).toMatch(message);
    expect(err).toMatch(/explain --help/);
  });

  it('requires a key', async () => {
    expect(await explain(AT, '', {})).toMatchObject({
      exit: 2,
      err: expect.stringMatching(/WEBHOOK_SECRET/),
    });
  });

  it('prints its help', async () => {
    expect(await explain(['--help'])).toMatchObject({
      exit: 0,
      out: expect.stringMatching(/--receipt/),
    });
  });
});
