import { readFile } from 'node:fs/promises';
import { USAGE, type CommandIo, type CommandOutput, type Commands } from './command.interface.js';

const NAME = 'nestjs-webhook-token';

/** All commands. To add one, write a file that exports `help`, `options` and `run`, and add a row here. */
const COMMANDS: Commands = {
  keygen: ['creates a shared secret or a key pair', () => import('./keygen.command.js')],
  sign: ['prints a signed request', () => import('./sign.command.js')],
  send: ['sends a signed event and explains the answer', () => import('./send.command.js')],
  listen: [
    'receives, verifies and prints webhooks on this machine',
    () => import('./listen.command.js'),
  ],
  verify: ['verifies a token', () => import('./verify.command.js')],
  decode: ['prints a token without verifying it', () => import('./decode.command.js')],
  conformance: [
    'tests a receiver in any language against the protocol',
    () => import('./conformance.command.js'),
  ],
  explain: [
    'explains why a captured request is accepted or refused',
    () => import('./explain.command.js'),
  ],
  console: ['shows the PostgreSQL stores in a browser', () => import('./console.command.js')],
  migrate: [
    'creates or updates the PostgreSQL tables of the stores',
    () => import('./migrate.command.js'),
  ],
  status: [
    'lists applied and pending migrations of these tables',
    () => import('./status.command.js'),
  ],
  sql: [
    'prints the migrations as SQL for your own migration tool',
    () => import('./sql.command.js'),
  ],
  import: [
    'imports endpoints and secrets from svix, outpost, convoy or @nestjs/webhooks',
    () => import('./import.command.js'),
  ],
  completion: [
    'prints a completion script for bash, zsh or fish',
    () => import('./completion.command.js'),
  ],
};

/**
 * Runs the command that the arguments name.
 *
 * @param args - the arguments after the script's path
 * @returns the exit code
 */
export async function runCommandLine(args: readonly string[], streams: CommandIo): Promise<number> {
  // The signal is read only by a command that runs until it is interrupted.
  const io = Object.create(streams, {
    stdout: { value: escaping(streams.stdout) },
    stderr: { value: escaping(streams.stderr) },
  }) as CommandIo;
  const [name, ...rest] = args;
  if (name === '--version' || name === '-v') {
    io.stdout.write(`${await version()}\n`);
    return 0;
  }
  if (name === undefined || name === '--help' || name === '-h') {
    (name === undefined ? io.stderr : io.stdout).write(help());
    return name === undefined ? USAGE : 0;
  }
  if (!Object.hasOwn(COMMANDS, name)) {
    io.stderr.write(
      `Unknown command or option ${JSON.stringify(name)}. Run "${NAME} --help" to list them.\n`,
    );
    return USAGE;
  }
  const [, load] = COMMANDS[name]!;
  const { runCommand } = await import('./arguments.js');
  return runCommand(name, await load(), rest, io, COMMANDS);
}

/**
 * Control characters other than tab and line feed, and those that change the direction of text: a sender or a receiver could hide
 * output with them. The escapes are those of JSON, so that printed JSON keeps its meaning.
 */
const TERMINAL_CONTROLS = /[^\P{Cc}\t\n]|[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

function escaping(stream: CommandOutput): CommandOutput {
  return {
    write: (output) =>
      stream.write(
        typeof output === 'string'
          ? output.replace(
              TERMINAL_CONTROLS,
              (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`,
            )
          : output,
      ),
  };
}

function help(): string {
  const width = Math.max(...Object.keys(COMMANDS).map(({ length }) => length));
  const rows = Object.entries(COMMANDS).map(
    ([name, [summary]]) => `  ${name.padEnd(width)}  ${summary}`,
  );
  return [
    `Usage: ${NAME} <command> [options]`,
    '',
    ...rows,
    '',
    `Run "${NAME} <command> --help" for the options of a command, "${NAME} --version" for the version.`,
    '',
  ].join('\n');
}

async function version(): Promise<string> {
  const text = await readFile(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
