import { Readable } from 'node:stream';
import { runCommandLine } from '../../lib/cli/command-line.js';
import { SECRET } from '../explain/receiver-bench.js';
import { Sink } from './conformance-run.js';

/** What the command printed, and how it ended. */
export interface ExplainRun {
  readonly exit: number;
  readonly out: string;
  readonly err: string;
}

/** Runs the command in this process; its secret is that of the trusted issuer by default. */
export async function runExplain(
  args: readonly string[],
  {
    stdin = '',
    env = { WEBHOOK_SECRET: SECRET },
  }: {
    readonly stdin?: string | Buffer | undefined;
    readonly env?: Record<string, string> | undefined;
  } = {},
): Promise<ExplainRun> {
  const [stdout, stderr] = [new Sink(), new Sink()];
  const input = Readable.from([Buffer.from(stdin as string)]);
  const exit = await runCommandLine(['explain', ...args], { stdin: input, stdout, stderr, env });
  return { exit, out: stdout.text, err: stderr.text };
}
