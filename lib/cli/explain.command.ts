import type { Readable } from 'node:stream';
import { readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { explainRequest } from '../explain/explain-request.js';
import { fromRequestLike } from '../request/incoming-webhook.js';
import { compareReceipts, type WebhookReceipt } from '../token/webhook-receipt.js';
import type { TrustedIssuer } from '../token/keys/key-ring.js';
import type { KeyMaterial } from '../token/keys/key-material.js';
import { createTokenVerifier, type TokenVerifier } from '../token/token-verifier.js';
import {
  DEFAULT_MAX_JSON_MEMBERS,
  type SignatureAlgorithm,
  type WebhookProfile,
} from '../token/webhook-token.constants.js';
import type { CommandIo } from './command.interface.js';
import { readCapturedRequest, UnreadableCaptureError } from './captured-request.js';
import { printExplanation } from './explanation.printer.js';

/** The output of `explain --help`. */
export const EXPLAIN_USAGE = `Usage: nestjs-webhook-token explain [file] --issuer <iss> [options]

Explains step by step why a captured request is accepted or refused. The file, or standard input,
contains the request as raw HTTP or as JSON { method, headers, body | bodyBase64 }.

  --issuer <iss>         the trusted issuer; required
  --secret-file <file>   file with its shared secret; a line feed at the end is ignored
  --secret <secret>      the shared secret; visible to other users, so prefer a file or WEBHOOK_SECRET
  --key <file>           public key instead of a secret, as PEM or JWK; requires --alg
  --alg <name>           algorithm of the key or secret; default HS256
  --kid <kid>            id of the key
  --audience <aud>       audience of the receiver; repeatable
  --profile <name>       wire format; repeatable
  --now <ISO time>       time of the receiver's clock when the request arrived; default now
  --receipt <file>       the sender's receipt as JSON, to list differences
  --json                 print the explanation and the differences as JSON

Exit code: 0 accepted, 1 refused, 2 wrong usage.
`;

const OPTIONS = {
  issuer: { type: 'string' },
  secret: { type: 'string' },
  'secret-file': { type: 'string' },
  key: { type: 'string' },
  alg: { type: 'string' },
  kid: { type: 'string' },
  audience: { type: 'string', multiple: true },
  profile: { type: 'string', multiple: true },
  now: { type: 'string' },
  receipt: { type: 'string' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

type Options = ReturnType<typeof parseArgs<{ options: typeof OPTIONS }>>['values'];

/** The default of a receiver. */
const MAX_BODY_BYTES = 32 * 1024 * 1024;

/** Wrong arguments; the message says what to do. */
class UsageError extends Error {}

/**
 * Explains a captured request.
 *
 * @returns the exit code: 0 accepted, 1 refused, 2 wrong usage
 */
export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  try {
    return await explain(args, io);
  } catch (error) {
    const isUsage =
      error instanceof UsageError ||
      error instanceof UnreadableCaptureError ||
      error instanceof WebhookConfigurationError;
    if (!isUsage) throw error;
    io.stderr.write(`${error.message}\nSee: nestjs-webhook-token explain --help\n`);
    return 2;
  }
}

async function explain(args: readonly string[], io: CommandIo): Promise<number> {
  const { values, positionals } = parsedArguments(args);
  if (values.help === true) {
    io.stdout.write(EXPLAIN_USAGE);
    return 0;
  }
  if (positionals.length > 1) throw new UsageError('Pass one file; run the command once per file.');
  const tokens = await verifierFrom(values, io.env);
  const sent = values.receipt === undefined ? undefined : await receiptFrom(values.receipt);
  const [file = '-'] = positionals;
  const capture = readCapturedRequest(
    file === '-' ? await readAll(io.stdin) : await readContent(file),
  );
  const explanation = await explainRequest(fromRequestLike(capture), {
    tokens,
    allowedEvents: new Map(),
    requireHash: true,
    maxBodyBytes: MAX_BODY_BYTES,
    maxJsonMembers: DEFAULT_MAX_JSON_MEMBERS,
  });
  const differences = sent && compareReceipts(sent, explanation.receipt ?? {});
  io.stdout.write(
    values.json === true
      ? `${JSON.stringify({ ...explanation, ...(differences && { differences }) }, undefined, 2)}\n`
      : printExplanation(explanation, differences),
  );
  return explanation.verdict === 'accepted' ? 0 : 1;
}

function parsedArguments(args: readonly string[]): { values: Options; positionals: string[] } {
  try {
    return parseArgs({ args: [...args], options: OPTIONS, allowPositionals: true });
  } catch (error) {
    // The message of parseArgs names the option, never its value.
    throw new UsageError((error as Error).message);
  }
}

async function verifierFrom(values: Options, env: CommandIo['env']): Promise<TokenVerifier> {
  const { issuer, alg, kid, audience, profile, now } = values;
  if (issuer === undefined)
    throw new UsageError('--issuer is required, for example --issuer https://shop.example');
  const key = await keyFrom(values, env);
  const time = now === undefined ? undefined : Date.parse(now);
  if (Number.isNaN(time)) {
    throw new UsageError('--now must be an ISO 8601 time, such as 2026-01-31T12:00:00Z');
  }
  const trusted: TrustedIssuer = {
    issuer,
    keys: [{ key, kid, alg: alg as SignatureAlgorithm | undefined }],
  };
  return createTokenVerifier({
    issuers: [trusted],
    audience,
    profiles: profile as readonly WebhookProfile[] | undefined,
    now: time === undefined ? undefined : () => time,
  });
}

async function keyFrom(values: Options, env: CommandIo['env']): Promise<KeyMaterial> {
  const { secret, key, 'secret-file': secretFile } = values;
  if ([secret, key, secretFile].filter((one) => one !== undefined).length > 1) {
    throw new UsageError('Pass only one of --secret, --secret-file and --key.');
  }
  if (key !== undefined) {
    const text = (await readContent(key)).toString();
    return text.trimStart().startsWith('{') ? (jsonOf(text, key) as KeyMaterial) : text;
  }
  // Editors add a line feed at the end of a file; it is not part of the secret.
  const text =
    secretFile === undefined
      ? undefined
      : (await readContent(secretFile)).toString().replace(/\r?\n$/, '');
  const found = text ?? secret ?? env['WEBHOOK_SECRET'];
  if (found !== undefined && found !== '') return found;
  throw new UsageError(
    'A key is required: pass --secret-file, or --key with --alg, or set WEBHOOK_SECRET.',
  );
}

async function receiptFrom(file: string): Promise<Partial<WebhookReceipt>> {
  const value = jsonOf((await readContent(file)).toString(), file);
  if (typeof value === 'object' && value !== null) return value;
  throw new UsageError(
    `${file} is not a receipt: save the property "receipt" of the sender's result as JSON.`,
  );
}

function jsonOf(text: string, file: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new UsageError(`${file} is not valid JSON.`);
  }
}

async function readContent(file: string): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (error) {
    throw new UsageError(`${file} cannot be read (${(error as NodeJS.ErrnoException).code}).`);
  }
}

async function readAll(stream: Readable): Promise<Buffer> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream as AsyncIterable<Buffer | string>) {
    chunks.push(Buffer.from(chunk as string));
  }
  return Buffer.concat(chunks);
}
