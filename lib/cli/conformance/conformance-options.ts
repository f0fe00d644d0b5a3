import { readFileSync } from 'node:fs';
import { parseEnv } from 'node:util';
import { parseDuration } from '../../clock/duration.js';
import { isEventName } from '../../token/event-name.js';
import { parseKey } from '../../token/keys/key-material.js';
import type { SignatureAlgorithm } from '../../token/webhook-token.constants.js';
import {
  type Arguments,
  ISSUER_VARIABLE,
  KEY_OPTIONS,
  parseArguments,
  SECRET_VARIABLE,
  UsageError,
} from '../arguments.js';
import type { ExchangeTarget } from './http-exchange.js';
import type { ProbeSettings } from './probe.context.js';
import {
  CONFORMANCE_PROFILES,
  PROBE_GROUPS,
  type ConformanceProfile,
  type ProbeGroup,
} from './probe.interface.js';
import { hmacSigner, keyPairSigner, secretBytes, type ProbeSigner } from './probe.signer.js';

const DEFAULT_TIMEOUT = '5s';
const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[::1\])$/;

const OPTIONS = {
  ...KEY_OPTIONS,
  audience: { type: 'string' },
  event: { type: 'string', default: 'order.created' },
  profile: { type: 'string', default: 'webhook-token' },
  only: { type: 'string' },
  timeout: { type: 'string', default: DEFAULT_TIMEOUT },
  'allow-http': { type: 'boolean', default: false },
  'insecure-ca': { type: 'string' },
  json: { type: 'boolean', default: false },
  help: { type: 'boolean', short: 'h', default: false },
} as const;

type Values = Arguments<typeof OPTIONS>['values'];

/** The arguments, read and checked. */
type ConformanceCall =
  | { readonly kind: 'help' }
  | { readonly kind: 'problems'; readonly problems: readonly string[] }
  | {
      readonly kind: 'run';
      readonly settings: Omit<ProbeSettings, 'now'>;
      readonly target: ExchangeTarget;
      readonly only: ProbeGroup | undefined;
      readonly json: boolean;
    };

/** Reads the arguments. Collects every problem; none quotes a secret. */
export function readConformanceCall(
  args: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): ConformanceCall {
  let parsed: Arguments<typeof OPTIONS>;
  try {
    parsed = parseArguments(args, OPTIONS);
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    return { kind: 'problems', problems: [error.message] };
  }
  const { values, positionals } = parsed;
  if (values.help) return { kind: 'help' };
  const problems: string[] = [];
  const url = readUrl(positionals, values, problems);
  const envFile = values['env-file'] && readText(values['env-file'], '--env-file', problems);
  const variables = envFile === undefined ? env : { ...env, ...parseEnv(envFile) };
  const { issuer = variables[ISSUER_VARIABLE] ?? '', audience, event, kid } = values;
  const signer = readSigner(values, variables, problems);
  const timeout = parseDuration(values.timeout);
  if (issuer === '') {
    problems.push('--issuer is required: name an issuer that the receiver trusts');
  }
  if (!isOneOf(CONFORMANCE_PROFILES, values.profile)) {
    problems.push(`--profile must be one of ${CONFORMANCE_PROFILES.join(', ')}`);
  } else if (!isEventName(values.event, values.profile)) {
    problems.push("--event must be an event name, such as 'order.created'");
  }
  if (values.only !== undefined && !isOneOf(PROBE_GROUPS, values.only)) {
    problems.push(`--only must be one of ${PROBE_GROUPS.join(', ')}`);
  }
  if (timeout === undefined || timeout <= 0) {
    problems.push("--timeout must be a positive duration, such as '5s' or '500ms'");
  }
  const ca = values['insecure-ca'] && readText(values['insecure-ca'], '--insecure-ca', problems);
  if (problems.length > 0 || url === undefined || signer === undefined || timeout === undefined) {
    return { kind: 'problems', problems };
  }
  return {
    kind: 'run',
    settings: {
      profile: values.profile as ConformanceProfile,
      issuer,
      audience,
      event,
      kid,
      signer,
    },
    target: { url, timeout, ca },
    only: values.only as ProbeGroup | undefined,
    json: values.json,
  };
}

function readUrl(
  positionals: readonly string[],
  values: Values,
  problems: string[],
): URL | undefined {
  const [text] = positionals;
  if (text === undefined || positionals.length > 1) {
    problems.push('pass one URL with the webhook path, such as https://crm.example/webhooks');
    return undefined;
  }
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol) || url.username !== '') {
    problems.push('the URL must begin with https:// or http:// and contain no user');
    return undefined;
  }
  if (url.protocol === 'http:' && !LOOPBACK.test(url.hostname) && !values['allow-http']) {
    problems.push(
      'anyone on the network path can read tokens sent over http://: use https://, or pass --allow-http',
    );
  }
  return url;
}

function readSigner(
  values: Values,
  env: Readonly<Record<string, string | undefined>>,
  problems: string[],
): ProbeSigner | undefined {
  const alg = (values.alg ?? 'HS256') as SignatureAlgorithm;
  const pem = values.key && readText(values.key, '--key', problems);
  const file = values['secret-file'] && readText(values['secret-file'], '--secret-file', problems);
  const given = [values.key, values['secret-file']].filter(Boolean);
  if (given.length > 1) {
    problems.push('pass only one of --secret-file and --key');
    return undefined;
  }
  // A newline at the end of the file is not part of the secret.
  const secret = file?.replace(/\r?\n$/, '') ?? (pem ? undefined : env[SECRET_VARIABLE]);
  const material = pem ?? secret;
  if (material === undefined || material === '') {
    if (given.length === 0) {
      problems.push(`a key is required: set ${SECRET_VARIABLE}, or pass --secret-file or --key`);
    }
    return undefined;
  }
  const { problem } = parseKey({ alg, kid: values.kid, key: material }, 'sign');
  if (problem !== undefined) {
    problems.push(`the key cannot be used: ${problem}`);
    return undefined;
  }
  return alg.startsWith('HS')
    ? hmacSigner(secretBytes(material), alg)
    : keyPairSigner(material, alg);
}

function readText(path: string, option: string, problems: string[]): string | undefined {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    problems.push(`${option}: the file cannot be read`);
    return undefined;
  }
}

function isOneOf<T extends string>(all: readonly T[], value: unknown): value is T {
  return all.includes(value as T);
}
