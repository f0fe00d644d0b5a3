import { isEventName } from '../../token/event-name.js';
import {
  type Arguments,
  KEY_OPTIONS,
  readAll,
  readContent,
  readIssuerKey,
  UsageError,
} from '../arguments.js';
import type { CommandIo } from '../command.interface.js';
import { readTarget } from '../http-call.js';
import type { ExchangeTarget } from './http-exchange.js';
import type { ProbeSettings } from './probe.context.js';
import { CONFORMANCE_PROFILES, PROBE_GROUPS, type ProbeGroup } from './probe.interface.js';
import { signerOf } from './probe.signer.js';

export const CONFORMANCE_OPTIONS = {
  ...KEY_OPTIONS,
  audience: { type: 'string' },
  // A receiver seldom has a handler for this event, which would validate its data.
  event: { type: 'string', default: 'webhook.conformance' },
  profile: { type: 'string', default: 'webhook-token' },
  only: { type: 'string' },
  timeout: { type: 'string', default: '5s' },
  'allow-http': { type: 'boolean' },
  'insecure-ca': { type: 'string' },
  json: { type: 'boolean' },
} as const;

interface ConformanceCall {
  readonly settings: Omit<ProbeSettings, 'now'>;
  readonly target: ExchangeTarget;
  readonly only: ProbeGroup | undefined;
}

/** @throws {@link UsageError} with every problem of the arguments */
export async function readConformanceCall(
  { values, positionals: [address, ...more] }: Arguments<typeof CONFORMANCE_OPTIONS>,
  env: CommandIo['env'],
): Promise<ConformanceCall> {
  const { audience, event, kid, 'insecure-ca': caFile } = values;
  const [{ url, timeout }, { issuer, key }, profile, only, ca] = await readAll(
    () => {
      if (more.length > 0) throw new UsageError('Pass one URL.');
      return readTarget(address, values);
    },
    async () => readIssuerKey(values, env, 'sign'),
    () => readProfile(values.profile, event),
    () => (values.only === undefined ? undefined : oneOf(PROBE_GROUPS, values.only, '--only')),
    async () => (caFile === undefined ? undefined : (await readContent(caFile)).toString()),
  );
  return {
    settings: { profile, issuer, audience, event, kid, signer: signerOf(key) },
    target: { url, timeout, ca },
    only,
  };
}

function readProfile(name: string, event: string): ProbeSettings['profile'] {
  const profile = oneOf(CONFORMANCE_PROFILES, name, '--profile');
  if (isEventName(event, profile)) return profile;
  throw new UsageError('--event must be the name of an event, such as order.created.');
}

function oneOf<T extends string>(all: readonly T[], value: string, option: string): T {
  const found = all.find((one) => one === value);
  if (found !== undefined) return found;
  throw new UsageError(`${option} must be one of ${all.join(', ')}.`);
}
