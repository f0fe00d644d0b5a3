#!/usr/bin/env node
import { USAGE } from './command.interface.js';
import { runCommandLine } from './command-line.js';

const { stdin, stdout, stderr, env } = process;
/** 128 + SIGPIPE, as a shell reports a program whose reader has gone. */
const BROKEN_PIPE = 141;
stdout.on('error', ({ code }: NodeJS.ErrnoException) => {
  if (code === 'EPIPE') process.exit(BROKEN_PIPE);
  stderr.write(`The output cannot be written (${code}).\n`, () => process.exit(USAGE));
});
// The exit code still reports the result of the command.
stderr.on('error', () => {});
const io = {
  stdin,
  stdout,
  stderr,
  env,
  // Without a listener, a signal ends the process: only a command that reads this property ends by itself.
  get signal(): AbortSignal {
    const interrupted = new AbortController();
    for (const name of ['SIGINT', 'SIGTERM']) process.once(name, () => interrupted.abort());
    return interrupted.signal;
  },
};
// Set the exit code instead of exiting, so that output to a pipe is not cut off.
process.exitCode = await runCommandLine(process.argv.slice(2), io);
