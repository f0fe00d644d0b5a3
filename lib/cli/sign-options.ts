import { signWebhook, type SignedTestWebhook } from '../testing/sign-webhook.js';
import { isEventName } from '../token/event-name.js';
import { isJsonType } from '../token/payload.js';
import type { WebhookProfile } from '../token/webhook-token.constants.js';
import { KEY_OPTIONS, readIssuerKey, readInput, textOf, UsageError } from './arguments.js';
import type { Arguments, CommandIo } from './command.interface.js';
import { readSender, SENDER_NAMES } from './sender-options.js';

export const SIGN_OPTIONS = {
  ...KEY_OPTIONS,
  sender: { type: 'string' },
  id: { type: 'string' },
  method: { type: 'string' },
  'content-type': { type: 'string' },
  profile: { type: 'string' },
  audience: { type: 'string', multiple: true },
  subject: { type: 'string' },
  lifetime: { type: 'string' },
} as const;

/** The help on {@link SIGN_OPTIONS}, without those of the key. */
export const SIGN_HELP = `  --sender <name>        sign as another sender instead of with a token: ${SENDER_NAMES}
  --id <id>              id of the event (txn); by default, every token is a new event
  --method <method>      HEAD, POST or auto (default): HEAD for an object of up to 6000 bytes
                         (publishers also limit the request head: by default, to about 4.8 kB of data)
  --content-type <type>  of the data; default application/json
  --profile <name>       wire format; default webhook-token
  --audience <aud>       audience of the token; repeatable
  --subject <sub>        subject of the token
  --lifetime <seconds>   default 300`;

type SignValues = Arguments<typeof SIGN_OPTIONS>['values'];

/**
 * @param data - JSON, `@file`, `-` for standard input; `undefined` for none
 * @throws {@link UsageError}
 */
export async function signArguments(
  event: string | undefined,
  data: string | undefined,
  values: SignValues,
  io: CommandIo,
): Promise<SignedTestWebhook> {
  const { profile, method = 'auto', lifetime, audience, sender, id, subject } = values;
  if (sender !== undefined) return signAs(sender, event, data, values, io);
  if (!isEventName(event, profile as WebhookProfile)) {
    throw new UsageError('Pass the name of the event, such as order.created.');
  }
  if (!['auto', 'HEAD', 'POST'].includes(method)) {
    throw new UsageError('--method must be HEAD, POST or auto.');
  }
  if (lifetime !== undefined && !/^\d{1,6}$/.test(lifetime)) {
    throw new UsageError('--lifetime must be a number of seconds.');
  }
  const { issuer, key } = await readIssuerKey(values, io.env, 'sign');
  const contentType = values['content-type'];
  const bytes = data === undefined ? undefined : await readData(data, io);
  const isJson = contentType === undefined || isJsonType(contentType);
  return signWebhook(event, (isJson ? parseData(bytes, data) : bytes) as never, {
    issuer,
    key,
    profile: profile as WebhookProfile | undefined,
    method: method as 'auto',
    contentType,
    id,
    subject,
    audience: audience?.length === 1 ? audience[0] : audience,
    lifetime: lifetime === undefined ? undefined : Number(lifetime),
  });
}

async function signAs(
  name: string,
  event: string | undefined,
  data: string | undefined,
  values: SignValues,
  io: CommandIo,
): Promise<SignedTestWebhook> {
  const sender = await readSender(name, values, io.env);
  if (!isEventName(event, 'swt-draft-00')) {
    throw new UsageError('Pass the name of the event, such as invoice.paid.');
  }
  const signed = await sender.sign({
    event,
    data: parseData(data === undefined ? undefined : await readData(data, io), data),
    id: values.id,
    now: Date.now(),
  });
  return { method: 'POST', token: '', ...signed };
}

async function readData(data: string, { stdin }: CommandIo): Promise<Buffer> {
  if (data === '-') return readInput('-', stdin);
  return data.startsWith('@') ? readInput(data.slice(1), stdin) : Buffer.from(data);
}

/** @param data - the argument that the bytes come from */
function parseData(bytes: Buffer | undefined, data = ''): unknown {
  if (bytes === undefined) return undefined;
  const json = textOf(bytes, data.startsWith('@') ? data.slice(1) : 'The data');
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    throw new UsageError(
      'The data is not valid JSON: quote it for your shell, pass @file, or name its --content-type.',
    );
  }
  requireExactNumbers(json);
  return value;
}

/** One token at a time: a pattern for a whole string overflows the stack on a long one. */
const QUOTE_ESCAPE_OR_NUMBER = /"|\\.|-?\d[\d.eE+-]*/g;

/** The data is parsed and written again, and JSON.parse rounds numbers. */
function requireExactNumbers(json: string): void {
  let isString = false;
  for (const [token] of json.matchAll(QUOTE_ESCAPE_OR_NUMBER)) {
    if (token === '"') isString = !isString;
    if (isString || token === '"' || decimal(token) === decimal(String(Number(token)))) continue;
    throw new UsageError(
      `The number ${token} would be sent as ${JSON.stringify(Number(token))}: write it as a string, "${token}".`,
    );
  }
}

/** Digits and exponent, the same for every notation of a number; the sign is left out. */
function decimal(number: string): string {
  const [, whole = '', fraction = '', exponent = '0'] =
    /^-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(number) ?? [];
  const digits = `${whole}${fraction}`.replace(/^0+/, '');
  const significant = digits.replace(/0+$/, '');
  if (significant === '') return whole === '' ? number : '0';
  return `${significant}e${Number(exponent) - fraction.length + digits.length - significant.length}`;
}
