import type { Readable } from 'node:stream';
import type { ParseArgsConfig, parseArgs } from 'node:util';

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

export type Options = NonNullable<ParseArgsConfig['options']>;

/** What the user has passed to a command. */
export type Arguments<Known extends Options> = ReturnType<
  typeof parseArgs<{ args: string[]; options: Known; allowPositionals: true }>
>;

/** The module of a command; loaded only when the command runs. */
export interface CommandModule {
  readonly help: string;
  /** Default: none. */
  readonly options?: Options;
  /**
   * @param given - the {@link Arguments} of its options
   * @param all - every command, by name
   * @returns an exit code that the help explains
   */
  run(given: never, io: CommandIo, all: Commands): Promise<number>;
}

/** Commands by name. */
export type Commands = Readonly<
  Record<string, readonly [summary: string, load: () => Promise<CommandModule>]>
>;

/** The exit code for wrong usage, and for output that cannot be written. */
export const USAGE = 2;
