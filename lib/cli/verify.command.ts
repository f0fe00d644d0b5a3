import { isWebhookError } from '../errors/webhook.error.js';
import { explainRequest } from '../explain/explain-request.js';
import type { WebhookExplanation } from '../explain/webhook-explanation.interface.js';
import { fromRequestLike } from '../request/request-like.js';
import {
  KEY_HELP,
  printableJson,
  printResult,
  readInput,
  textOf,
  UsageError,
} from './arguments.js';
import { readCapturedRequest } from './captured-request.js';
import type { Arguments, CommandIo } from './command.interface.js';
import { hintLines } from './explanation.printer.js';
import { readClock, readRules, RECEIVER_OPTIONS } from './receiver-rules.js';
import { readSender, rulesOfSender, SENDER_NAMES } from './sender-options.js';

export const help = `Usage: nestjs-webhook-token verify [file] --issuer <iss> [options]

Verifies a token and prints its claims. The token is read from a file or standard input, since other
users can read the command line. To check a whole request, use explain. With --sender, verifies a
captured request of another sender, as raw HTTP or JSON { method, headers, body }.

${KEY_HELP}
  --sender <name>        ${SENDER_NAMES}
  --audience <aud>       audience of the receiver; repeatable
  --profile <name>       accepted wire format; repeatable
  --now <ISO time>       time of the receiver's clock; default now
  --json                 print JSON: { verified, header, claims } or { verified, code, detail };
                         of a sender, { verified, event, id } or { verified, code, detail, hints }

Exit code: 0 valid, 1 not valid, 2 wrong usage.
`;

export const options = {
  ...RECEIVER_OPTIONS,
  sender: { type: 'string' },
  now: { type: 'string' },
  json: { type: 'boolean' },
} as const;

type Given = Arguments<typeof options>;

const NOT_VALID = 1;

/** @returns 0 valid, 1 not valid, 2 wrong usage */
export async function run({ values, positionals }: Given, io: CommandIo): Promise<number> {
  const { verify, hints } =
    values.sender === undefined
      ? await tokenCheck({ values, positionals }, io)
      : await senderCheck(values.sender, { values, positionals }, io);
  const write = (text: string, json: unknown): void =>
    printResult(io, values.json, json, `${text}\n`);
  try {
    const { text, json } = await verify();
    write(`valid\n${text}`, { verified: true, ...json });
    return 0;
  } catch (error) {
    if (!isWebhookError(error)) throw error;
    const { code, message } = error;
    const found = await hints?.();
    const lines = [`not valid: ${code}`, `  ${message}`, ...hintLines(found ?? [])];
    const json = { verified: false, code, detail: message, ...(found && { hints: found }) };
    write(lines.join('\n'), json);
    return NOT_VALID;
  }
}

interface Check {
  /** What was verified, as text and as JSON. */
  readonly verify: () => Promise<{ readonly text: string; readonly json: object }>;
  /** Why it is refused. */
  readonly hints?: () => Promise<WebhookExplanation['hints']>;
}

async function tokenCheck({ values, positionals }: Given, io: CommandIo): Promise<Check> {
  const { tokens } = await readRules(values, io.env);
  const token = await readToken(positionals, io);
  return {
    async verify() {
      const { header, claims } = await tokens.verify(token);
      return { text: tokenText(header, claims), json: { header, claims } };
    },
  };
}

async function senderCheck(
  name: string,
  { values, positionals }: Given,
  io: CommandIo,
): Promise<Check> {
  const sender = await readSender(name, values, io.env);
  const now = readClock(values.now) ?? Date.now;
  const [file = '-', ...more] = positionals;
  if (more.length > 0) throw new UsageError('Pass one file; run the command once per file.');
  const incoming = fromRequestLike(readCapturedRequest(await readInput(file, io.stdin)));
  const rules = { ...rulesOfSender(now), scheme: sender };
  return {
    async verify() {
      const verified = await sender.verify(incoming, rules);
      if (!('claims' in verified)) {
        return { text: 'a check of the receiver, without an event', json: {} };
      }
      const { webhook, jti: id } = verified.claims;
      return { text: `${webhook.event} ${id}`, json: { event: webhook.event, id } };
    },
    hints: async () => (await explainRequest(incoming, rules)).hints,
  };
}

/** Reads one token, with or without `Bearer`. */
export async function readToken(files: readonly string[], { stdin }: CommandIo): Promise<string> {
  const [file = '-', ...more] = files;
  // A token is a credential, so it is not quoted.
  if (more.length > 0 || (file.split('.').length === 3 && file.startsWith('eyJ'))) {
    throw new UsageError('Pass the token in one file or on standard input, not as an argument.');
  }
  return textOf(await readInput(file, stdin), file === '-' ? 'The input' : file)
    .trim()
    .replace(/^(?:authorization:\s*)?bearer\s+/i, '');
}

/** Header and claims, each as JSON. */
export function tokenText(header: unknown, claims: unknown): string {
  return `header ${printableJson(header, 2)}\nclaims ${printableJson(claims, 2)}`;
}
