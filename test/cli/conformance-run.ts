import { Readable, Writable } from 'node:stream';
import { runCommandLine } from '../../lib/cli/command-line.js';
import { ISSUER, SECRET } from '../fixtures/receiver-app.js';

/** What the command printed, and how it ended. */
export interface CommandRun {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** One row of `--json`. */
export interface ProbeRow {
  readonly id: string;
  readonly level: 'must' | 'should';
  readonly verdict: 'pass' | 'warn' | 'fail' | 'error' | 'skipped';
  readonly detail: string;
  readonly reason: string;
}

export interface Report {
  readonly end: string;
  readonly reason?: string;
  readonly profile: string;
  readonly clockSkewSeconds?: number;
  readonly totals: Readonly<Record<ProbeRow['verdict'], number>>;
  readonly probes: readonly ProbeRow[];
}

/** Runs the command in this process, with the secret in its environment. */
export async function conformance(
  args: readonly string[],
  env: Record<string, string> = { WEBHOOK_SECRET: SECRET },
): Promise<CommandRun> {
  const [stdout, stderr] = [new Sink(), new Sink()];
  const code = await runCommandLine(['conformance', ...args], {
    stdin: Readable.from([]),
    stdout,
    stderr,
    env,
  });
  return { code, stdout: stdout.text, stderr: stderr.text };
}

/** Runs it against a receiver, and reads its JSON. */
export async function report(
  url: string,
  ...more: readonly string[]
): Promise<CommandRun & { report: Report }> {
  const args = [url, '--issuer', ISSUER, '--json', ...more];
  const result = await conformance(args, more.includes('--key') ? {} : undefined);
  return { ...result, report: JSON.parse(result.stdout) as Report };
}

/** The ids of the probes that ended so. */
export function ids({ probes }: Report, ...verdicts: readonly ProbeRow['verdict'][]): string[] {
  return probes.filter(({ verdict }) => verdicts.includes(verdict)).map(({ id }) => id);
}

/** Keeps what is printed. */
export class Sink extends Writable {
  bytes = Buffer.alloc(0);

  get text(): string {
    return this.bytes.toString();
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.bytes = Buffer.concat([this.bytes, chunk]);
    done();
  }
}
