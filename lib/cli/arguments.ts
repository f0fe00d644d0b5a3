import { open, readFile } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { parseArgs, parseEnv } from 'node:util';
import { parseDuration } from '../clock/duration.js';
import { LONGEST_TIMEOUT } from '../clock/webhook-clock.js';
import { isWebhookError } from '../errors/webhook.error.js';
import { type KeyMaterial, parseKey } from '../token/keys/key-material.js';
import type { SignatureAlgorithm } from '../token/webhook-token.constants.js';
import {
  type Arguments,
  type CommandIo,
  type CommandModule,
  type Commands,
  type Options,
  USAGE,
} from './command.interface.js';
import { decodeText } from './text-encoding.js';

/** Ends a command with a message, which never quotes a value. */
export class CommandError extends Error {}

/** Wrong arguments or input; the message says what to do. */
export class UsageError extends CommandError {}

/** The environment variables with the shared secret and its issuer. */
export const SECRET_VARIABLE = 'WEBHOOK_SECRET';
export const ISSUER_VARIABLE = 'WEBHOOK_ISSUER';

export const KEY_OPTIONS = {
  issuer: { type: 'string' },
  'secret-file': { type: 'string' },
  key: { type: 'string' },
  alg: { type: 'string' },
  kid: { type: 'string' },
  'env-file': { type: 'string' },
} as const satisfies Options;

export const KEY_HELP = `  --issuer <iss>         the issuer; default: the variable ${ISSUER_VARIABLE}
  --secret-file <file>   file with the shared secret; default: the variable ${SECRET_VARIABLE}
  --key <file>           key instead of a secret, as PEM or JWK; requires --alg
  --alg <name>           HS256 (default), HS384, HS512, RS256, PS256, ES256, ES384, EdDSA
  --kid <kid>            id of the key
  --env-file <file>      file with these variables, such as .env`;

/**
 * Runs a command: parses its arguments, prints its help, and reports errors of its user.
 *
 * @returns the exit code of the command, 0 for help, 2 for wrong usage
 */
export async function runCommand(
  name: string,
  { help, options = {}, run }: CommandModule,
  args: readonly string[],
  io: CommandIo,
  all: Commands,
): Promise<number> {
  try {
    if (args.includes('--help') || args.includes('-h')) {
      io.stdout.write(help);
      return 0;
    }
    return await run(parseArguments(args, options) as never, io, all);
  } catch (error) {
    const isUsage = error instanceof UsageError || isWebhookError(error);
    if (!isUsage && !(error instanceof CommandError)) throw error;
    const advice = isUsage ? `See: nestjs-webhook-token ${name} --help\n` : '';
    io.stderr.write(`${error.message}\n${advice}`);
    return USAGE;
  }
}

/** @throws {@link UsageError} */
function parseArguments(args: readonly string[], options: Options): Arguments<Options> {
  if (args.some((one) => /^--secret(?:=|$)/.test(one))) {
    throw new UsageError(
      `--secret is not an option, because other users of this machine could read the secret: set ${SECRET_VARIABLE}, or pass --secret-file.`,
    );
  }
  try {
    return parseArgs({ args: [...args], options, allowPositionals: true });
  } catch (error) {
    // The message names the option; of an unknown one, it may quote a mistyped secret.
    const { message } = error as Error;
    const option = /^[^']*'(?:-\w, )?(--?[A-Za-z-]{1,30})[' ]/.exec(message)?.[1];
    const subject = option === undefined ? 'An option' : `The option ${option}`;
    if ((error as { code?: string }).code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION') {
      throw new UsageError(
        option === undefined
          ? 'An option is unknown. Write -- before arguments that begin with -, such as -5.'
          : `${subject} is unknown.`,
      );
    }
    throw new UsageError(
      message.includes('does not take an argument')
        ? `${subject} takes no value.`
        : `${subject} needs a value: write ${option ?? '--option'}=<value>.`,
    );
  }
}

export type KeyValues = { readonly [Name in keyof typeof KEY_OPTIONS]?: string | undefined };

export interface IssuerKey {
  readonly issuer: string;
  readonly key: {
    readonly key: KeyMaterial;
    readonly kid: string | undefined;
    readonly alg: SignatureAlgorithm | undefined;
  };
}

/**
 * Reads the issuer and its key from files or the environment, and checks the key.
 *
 * @throws {@link UsageError}
 */
export async function readIssuerKey(
  values: KeyValues,
  env: CommandIo['env'],
  use: 'sign' | 'verify',
): Promise<IssuerKey> {
  const variables = await readVariables(values['env-file'], env);
  const [issuer, key] = await readAll(
    () => readIssuer(values, variables),
    async () => readKey(values, variables, use),
  );
  return { issuer, key };
}

/**
 * Runs readers of options that do not depend on each other.
 *
 * @throws {@link UsageError} with the messages of all that fail
 */
export async function readAll<Values extends readonly unknown[]>(
  ...readers: { readonly [Index in keyof Values]: () => Values[Index] | Promise<Values[Index]> }
): Promise<Values> {
  const values: unknown[] = [];
  const problems: string[] = [];
  for (const read of readers) {
    try {
      values.push(await read());
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      problems.push(error.message);
    }
  }
  if (problems.length > 0) throw new UsageError(problems.join('\n'));
  return values as readonly unknown[] as Values;
}

/** The environment, and over it the variables of a file. */
export async function readVariables(
  file: string | undefined,
  env: CommandIo['env'],
): Promise<CommandIo['env']> {
  return file === undefined ? env : { ...env, ...parseEnv(await readText(file)) };
}

function readIssuer(
  { issuer }: KeyValues,
  { [ISSUER_VARIABLE]: fallback }: CommandIo['env'],
): string {
  const found = issuer ?? fallback ?? '';
  if (found !== '') return found;
  throw new UsageError(
    `--issuer is required, for example --issuer https://shop.example, or set ${ISSUER_VARIABLE}.`,
  );
}

async function readKey(
  values: KeyValues,
  env: CommandIo['env'],
  use: 'sign' | 'verify',
): Promise<IssuerKey['key']> {
  const key = {
    key: await readKeyMaterial(values, env),
    kid: values.kid,
    alg: values.alg as SignatureAlgorithm | undefined,
  };
  const { problem } = parseKey(key, use);
  if (problem !== undefined) throw new UsageError(`The key cannot be used: ${problem}`);
  return key;
}

async function readKeyMaterial(
  { key, 'secret-file': secretFile }: KeyValues,
  env: CommandIo['env'],
): Promise<KeyMaterial> {
  if (key !== undefined && secretFile !== undefined) {
    throw new UsageError('Pass only one of --secret-file and --key.');
  }
  if (key !== undefined) {
    const content = await readText(key, 'The file of --key');
    return content.trimStart().startsWith('{') ? (jsonOf(content, key) as KeyMaterial) : content;
  }
  const secret = await readSecret({ 'secret-file': secretFile }, env);
  if (secret !== undefined) return secret;
  throw new UsageError(
    `A key is required: set ${SECRET_VARIABLE}, or pass --secret-file, or --key with --alg.`,
  );
}

/** A secret of a file or the environment; by default, the shared one. */
export async function readSecret(
  { 'secret-file': file }: KeyValues,
  env: CommandIo['env'],
  { variable = SECRET_VARIABLE, option = '--secret-file' } = {},
): Promise<string | undefined> {
  const secret =
    file === undefined
      ? env[variable]
      : // Editors add a line feed at the end of a file; it is not part of the secret.
        (await readText(file, `The file of ${option}`)).replace(/\r?\n$/, '');
  return secret === '' ? undefined : secret;
}

/** JSON whose strings can neither break a line nor control a terminal: of those characters, `JSON.stringify` escapes C0 only. */
export function printableJson(value: unknown, indent?: number): string {
  return JSON.stringify(value, undefined, indent).replace(
    /[\x7f-\x9f\u2028\u2029]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Prints a result: with `--json` as JSON, otherwise as text. */
export function printResult(
  { stdout }: CommandIo,
  isJson: boolean | undefined,
  json: unknown,
  text: string | Uint8Array,
): void {
  stdout.write(isJson === true ? `${printableJson(json, 2)}\n` : text);
}

/** Resolves when a command that runs until it is interrupted must end. */
export async function interruption({ signal }: CommandIo): Promise<void> {
  if (signal?.aborted === true) return;
  await new Promise<void>((resolve) => {
    signal?.addEventListener('abort', () => resolve(), { once: true });
  });
}

/** @throws {@link UsageError} unless it is a port number */
export function readPort(value: string): number {
  const port = Number(value);
  if (!/^\d{1,5}$/.test(value) || port > 65_535) {
    throw new UsageError('--port must be a port number, from 0 to 65535.');
  }
  return port;
}

/**
 * @returns milliseconds
 * @throws {@link UsageError}
 */
export function readTimeout(value: string): number {
  const timeout = Math.ceil(parseDuration(value) ?? 0);
  if (timeout > 0 && timeout <= LONGEST_TIMEOUT) return timeout;
  throw new UsageError(
    '--timeout must be a positive duration of at most 24d, such as 5s or 500ms.',
  );
}

export function jsonOf(content: string, file: string): unknown {
  try {
    return JSON.parse(content);
  } catch {
    throw new UsageError(`${file} is not valid JSON.`);
  }
}

/**
 * @param name - for the message, if a secret may be passed in place of the file
 * @throws {@link UsageError} if the file cannot be read, or is not text
 */
export async function readText(file: string, name = file): Promise<string> {
  return textOf(await readContent(file, name), name);
}

/**
 * @param name - of the input, for the message
 * @throws {@link UsageError}
 */
export function textOf(bytes: Buffer, name: string): string {
  const text = decodeText(bytes);
  if (text !== undefined) return text;
  throw new UsageError(`${name} is not text in UTF-8: save it in that encoding.`);
}

/** Reads a file; `-` is standard input. */
export async function readInput(file: string, stdin: Readable): Promise<Buffer> {
  return file === '-' ? buffer(stdin) : readContent(file);
}

/**
 * Writes a file that only its owner can read. The mode of a device or a pipe is not changed.
 *
 * @throws {@link UsageError} if the file cannot be written, or exists and `flag` is `wx`
 */
export async function writeOwnFile(file: string, content: string, flag: 'w' | 'wx'): Promise<void> {
  try {
    const handle = await open(file, flag, 0o600);
    try {
      // A file that existed has kept its mode.
      if ((await handle.stat()).isFile()) await handle.chmod(0o600);
      await handle.writeFile(content);
    } finally {
      await handle.close();
    }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new UsageError(
      code === 'EEXIST'
        ? `${file} exists; choose another --out.`
        : `${file} cannot be written (${code}).`,
    );
  }
}

/** @throws {@link UsageError} if the file cannot be read */
export async function readContent(file: string, name = file): Promise<Buffer> {
  try {
    return await readFile(file);
  } catch (error) {
    throw new UsageError(`${name} cannot be read (${(error as NodeJS.ErrnoException).code}).`);
  }
}
