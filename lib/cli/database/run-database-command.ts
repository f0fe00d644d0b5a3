import { USAGE, type CommandIo } from '../command.interface.js';
import { DatabaseUsageError } from './database-call.js';
import { DatabaseSessionError } from './database-session.js';

/** The exit code of a command whose database did not let it. */
const FAILED = 2;

/** Runs a command, and says in one line why it could not be run. */
export async function runDatabaseCommand(
  name: string,
  io: CommandIo,
  work: () => Promise<number>,
): Promise<number> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof DatabaseUsageError) {
      io.stderr.write(`${error.message}\nSee: nestjs-webhook-token ${name} --help\n`);
      return USAGE;
    }
    if (!(error instanceof DatabaseSessionError)) throw error;
    io.stderr.write(`${error.message}\n`);
    return FAILED;
  }
}
