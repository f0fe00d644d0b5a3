import { KEY_HELP, printResult, runWithArguments, UsageError } from './arguments.js';
import type { CommandIo } from './command.interface.js';
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

const OPTIONS = {
  ...SIGN_OPTIONS,
  json: { type: 'boolean' },
} as const;

export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  const command = { name: 'sign', help, options: OPTIONS };
  return runWithArguments(command, args, io, async ({ values, positionals }) => {
    const [event, data, ...more] = positionals;
    if (more.length > 0)
      throw new UsageError('Pass an event, and its data as one quoted argument.');
    const signed = await signArguments(event, data, values, io);
    printResult(io, values.json, capturedJson(signed), capturedHttp(signed));
    return 0;
  });
}
