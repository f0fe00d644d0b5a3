import { type ExplainedRules, explainRequest } from '../explain/explain-request.js';
import { fromRequestLike } from '../request/request-like.js';
import { compareReceipts, type WebhookReceipt } from '../token/webhook-receipt.js';
import type { Arguments, CommandIo } from './command.interface.js';
import { jsonOf, KEY_HELP, printResult, readInput, readText, UsageError } from './arguments.js';
import { readClock, readRules, RECEIVER_OPTIONS } from './receiver-rules.js';
import { readSender, rulesOfSender, SENDER_NAMES } from './sender-options.js';
import { readCapturedRequest } from './captured-request.js';
import { printExplanation } from './explanation.printer.js';

export const help = `Usage: nestjs-webhook-token explain [file] --issuer <iss> [options]

Explains step by step why a captured request is accepted or refused. The file, or standard input,
contains the request as raw HTTP or as JSON { method, headers, body | bodyBase64 }. The definitions
of the application's events are not known here; WebhookVerifier.explain() checks them too.

${KEY_HELP}
  --sender <name>        explain a request of another sender, with its secret:
                         ${SENDER_NAMES}
  --audience <aud>       audience of the receiver; repeatable
  --profile <name>       wire format; repeatable
  --now <ISO time>       time of the receiver's clock when the request arrived; default now
  --receipt <file>       the sender's receipt as JSON, to list differences
  --json                 print the explanation and the differences as JSON

Exit code: 0 accepted, 1 refused, 2 wrong usage.
`;

export const options = {
  ...RECEIVER_OPTIONS,
  sender: { type: 'string' },
  now: { type: 'string' },
  receipt: { type: 'string' },
  json: { type: 'boolean' },
} as const;

type Given = Arguments<typeof options>;

export async function run({ values, positionals }: Given, io: CommandIo): Promise<number> {
  if (positionals.length > 1) throw new UsageError('Pass one file; run the command once per file.');
  const rules = await explainedRules(values, io);
  const sent = values.receipt === undefined ? undefined : await receiptFrom(values.receipt);
  const [file = '-'] = positionals;
  const capture = readCapturedRequest(await readInput(file, io.stdin));
  const explanation = await explainRequest(fromRequestLike(capture), rules);
  const differences = sent && compareReceipts(sent, explanation.receipt ?? {});
  const text = printExplanation(explanation, differences);
  printResult(io, values.json, { ...explanation, differences }, text);
  return explanation.verdict === 'accepted' ? 0 : 1;
}

async function explainedRules(
  values: Given['values'],
  { env }: CommandIo,
): Promise<ExplainedRules> {
  if (values.sender === undefined) return readRules(values, env);
  const scheme = await readSender(values.sender, values, env);
  return { ...rulesOfSender(readClock(values.now) ?? Date.now), scheme };
}

async function receiptFrom(file: string): Promise<Partial<WebhookReceipt>> {
  const value = jsonOf(await readText(file), file);
  if (typeof value === 'object' && value !== null) return value;
  throw new UsageError(
    `${file} is not a receipt: save the property "receipt" of the sender's result as JSON.`,
  );
}
