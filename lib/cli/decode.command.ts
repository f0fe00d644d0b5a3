import { printResult, UsageError } from './arguments.js';
import type { Arguments, CommandIo } from './command.interface.js';
import { readToken, tokenText } from './verify.command.js';

export const help = `Usage: nestjs-webhook-token decode [file] [--json]

Prints header and claims of a token without verifying it: anyone can write such a token. It is read
from a file or standard input. To verify it, use verify.

  --json                 print JSON: { verified: false, header, claims }

Exit code: 0 decoded, 2 wrong usage or no token.
`;

export const options = {
  json: { type: 'boolean' },
} as const;

type Given = Arguments<typeof options>;

export async function run({ values, positionals }: Given, io: CommandIo): Promise<number> {
  const [header, claims] = (await readToken(positionals, io)).split('.').slice(0, 2).map(decode);
  if (claims === undefined) throw new UsageError('The input is not a signed token.');
  const text = `UNVERIFIED: anyone can write these claims\n${tokenText(header, claims)}\n`;
  printResult(io, values.json, { verified: false, header, claims }, text);
  return 0;
}

function decode(part: string): unknown {
  try {
    return JSON.parse(Buffer.from(part, 'base64url').toString());
  } catch {
    throw new UsageError('The input is not a signed token: its parts must be base64url of JSON.');
  }
}
