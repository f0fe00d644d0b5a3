import { readFile } from 'node:fs/promises';
import { USAGE, type Command, type CommandIo } from './command.interface.js';

const NAME = 'nestjs-webhook-token';

/** Every command. A new one is a file that exports `run`, and a row here. */
const COMMANDS: Readonly<Record<string, Command>> = {
  conformance: {
    summary: 'holds a receiver, in any language, against the rules of the protocol',
    load: () => import('./conformance.command.js'),
  },
  explain: {
    summary: 'says step by step why a captured request is accepted or refused',
    load: () => import('./explain.command.js'),
  },
  migrate: {
    summary: 'makes the tables of the stores on PostgreSQL, or brings them up to date',
    load: () => import('./migrate.command.js'),
  },
  status: {
    summary: 'says which steps of those tables are applied, and which are pending',
    load: () => import('./status.command.js'),
  },
  sql: {
    summary: 'prints those steps as SQL, for a migration tool of your own',
    load: () => import('./sql.command.js'),
  },
};

/**
 * Runs what a command line asks for.
 *
 * @param args - without node and the script
 * @returns the exit code
 */
export async function runCommandLine(args: readonly string[], io: CommandIo): Promise<number> {
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
      `There is no command or option ${JSON.stringify(name)}. "${NAME} --help" lists them.\n`,
    );
    return USAGE;
  }
  const { run } = await COMMANDS[name]!.load();
  return run(rest, io);
}

function help(): string {
  const width = Math.max(...Object.keys(COMMANDS).map(({ length }) => length));
  const rows = Object.entries(COMMANDS).map(
    ([name, { summary }]) => `  ${name.padEnd(width)}  ${summary}`,
  );
  return [
    `Usage: ${NAME} <command> [options]`,
    '',
    ...rows,
    '',
    `"${NAME} <command> --help" says more. --version prints the version.`,
    '',
  ].join('\n');
}

async function version(): Promise<string> {
  const text = await readFile(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
