import { isWebhookError } from '../errors/webhook.error.js';
import { KEY_HELP, readInput, runWithArguments, UsageError } from './arguments.js';
import { readRules, RECEIVER_OPTIONS } from './receiver-rules.js';
import type { CommandIo } from './command.interface.js';

/** The output of `verify --help`. */
export const help = `Usage: nestjs-webhook-token verify [file] --issuer <iss> [options]

Verifies a token and prints its claims. The token is read from a file or standard input, since other
users can read the command line. To check a whole request, use explain.

${KEY_HELP}
  --audience <aud>       audience of the receiver; repeatable
  --profile <name>       accepted wire format; repeatable
  --now <ISO time>       time of the receiver's clock; default now
  --json                 print JSON: { verified, header, claims } or { verified, code, detail }

Exit code: 0 valid, 1 not valid, 2 wrong usage.
`;

const OPTIONS = {
  ...RECEIVER_OPTIONS,
  now: { type: 'string' },
  json: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

const NOT_VALID = 1;

/**
 * Verifies a token.
 *
 * @returns 0 valid, 1 not valid, 2 wrong usage
 */
export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  const command = { name: 'verify', help, options: OPTIONS };
  return runWithArguments(command, args, io, async ({ values, positionals }) => {
    const { tokens } = await readRules(values, io.env);
    const token = await readToken(positionals, io);
    const write = (text: string, json: unknown): void =>
      void io.stdout.write(
        values.json === true ? `${JSON.stringify(json, undefined, 2)}\n` : `${text}\n`,
      );
    try {
      const { header, claims } = await tokens.verify(token);
      write(`valid\n${tokenText(header, claims)}`, { verified: true, header, claims });
      return 0;
    } catch (error) {
      if (!isWebhookError(error)) throw error;
      const { code, message } = error;
      write(`not valid: ${code}\n  ${message}`, { verified: false, code, detail: message });
      return NOT_VALID;
    }
  });
}

/** Reads one token, with or without `Bearer`. */
export async function readToken(files: readonly string[], { stdin }: CommandIo): Promise<string> {
  const [file = '-', ...more] = files;
  // A token is a credential, so it is not quoted.
  if (more.length > 0 || (file.split('.').length === 3 && file.startsWith('eyJ'))) {
    throw new UsageError('Pass the token in one file or on standard input, not as an argument.');
  }
  return (await readInput(file, stdin))
    .toString()
    .trim()
    .replace(/^(?:authorization:\s*)?bearer\s+/i, '');
}

/** Header and claims, each as JSON. */
export function tokenText(header: unknown, claims: unknown): string {
  return `header ${JSON.stringify(header, undefined, 2)}\nclaims ${JSON.stringify(claims, undefined, 2)}`;
}
