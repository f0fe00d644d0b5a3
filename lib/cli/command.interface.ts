import type { Readable, Writable } from 'node:stream';

/** What a command reads and writes, in place of the process's own. */
export interface CommandIo {
  readonly stdin: Readable;
  readonly stdout: Writable;
  readonly stderr: Writable;
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** A command's module: one file a command, loaded when it is called for. */
interface CommandModule {
  /**
   * @param args - what stands behind the command's name
   * @returns the exit code: 0 for success, 2 for a wrong usage
   */
  run(args: readonly string[], io: CommandIo): Promise<number>;
}

/** A row of the command table. */
export interface Command {
  readonly summary: string;
  load(): Promise<CommandModule>;
}

/** The exit code of a call that cannot be understood. */
export const USAGE = 2;
