import { KEY_HELP, printResult, UsageError } from './arguments.js';
import type { Arguments, CommandIo } from './command.interface.js';
import { signArguments, SIGN_HELP, SIGN_OPTIONS } from './sign-options.js';
import { capturedJson, capturedHttp } from './captured-request.js';

export const help = `Usage: nestjs-webhook-token sign <event> [data] --issuer <iss> [options]

Signs an event, and prints the request as raw HTTP. It contains the token: anyone who has it can send
the event until it expires. The data is JSON, @file, or - for standard input.

${KEY_HELP}
${SIGN_HELP}
  --json                 print JSON: { method, headers, body }

Exit code: 0 signed, 2 wrong usage.
`;

export const options = {
  ...SIGN_OPTIONS,
  json: { type: 'boolean' },
} as const;

type Given = Arguments<typeof options>;

export async function run({ values, positionals }: Given, io: CommandIo): Promise<number> {
  const [event, data, ...more] = positionals;
  if (more.length > 0) throw new UsageError('Pass an event, and its data as one quoted argument.');
  const signed = await signArguments(event, data, values, io);
  printResult(io, values.json, capturedJson(signed), capturedHttp(signed));
  return 0;
}
