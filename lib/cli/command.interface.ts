import type { Readable } from 'node:stream';

/** Where a command prints to. Strings are escaped, so that they cannot control a terminal; bytes are written as they are. */
export interface CommandOutput {
  write(output: string | Uint8Array): boolean;
}

export interface CommandIo {
  readonly stdin: Readable;
  readonly stdout: CommandOutput;
  readonly stderr: CommandOutput;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Aborted when a command that runs until it is interrupted must end. */
  readonly signal?: AbortSignal | undefined;
}

/** The module of a command; loaded only when the command runs. */
export interface CommandModule {
  readonly help: string;
  /**
   * @param args - the arguments after the command's name
   * @param all - every command, by name
   * @returns an exit code that the help explains; {@link USAGE} for wrong usage
   */
  run(
    args: readonly string[],
    io: CommandIo,
    all: Readonly<Record<string, Command>>,
  ): Promise<number>;
}

export interface Command {
  readonly summary: string;
  load(): Promise<CommandModule>;
}

/** The exit code for wrong usage. */
export const USAGE = 2;
