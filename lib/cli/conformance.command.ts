import { areCertificates } from '../egress/guarded-agent.js';
import { isEventName } from '../token/event-name.js';
import {
  KEY_HELP,
  KEY_OPTIONS,
  printResult,
  readAll,
  readContent,
  readIssuerKey,
  UsageError,
} from './arguments.js';
import type { Arguments, CommandIo } from './command.interface.js';
import { reportJson, reportText } from './conformance/conformance-report.js';
import { runConformance, type ConformanceRun } from './conformance/conformance.runner.js';
import { ProbeContext } from './conformance/probe.context.js';
import {
  CONFORMANCE_PROFILES,
  type ConformanceProfile,
  PROBE_GROUPS,
} from './conformance/probe.interface.js';
import { signerOf } from './conformance/probe.signer.js';
import { readTarget } from './http-call.js';

const FAILED = 1;
const UNREACHABLE = 3;

export const help = `Usage: nestjs-webhook-token conformance <url> --issuer <iss> [options]

Sends valid and invalid requests to a receiver and reports which rules of the protocol it follows.
Valid requests are handled as real events: use a test receiver. It must trust the issuer.

${KEY_HELP}
  --audience <aud>       audience of the receiver, if it has one
  --event <name>         default webhook.conformance; choose an event whose data is not validated
  --profile <name>       wire format: ${CONFORMANCE_PROFILES.join(', ')}
  --only <group>         run one group: ${PROBE_GROUPS.join(', ')}
  --timeout <duration>   for each answer; default 5s
  --allow-http           allow http:// to hosts other than this machine
  --insecure-ca <file>   trust this certificate authority (PEM) instead of the public ones
  --json                 print JSON

Exit code: 0 every required probe passes, 1 one fails, 2 wrong usage, 3 the receiver is unreachable.
`;

export const options = {
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

type Given = Arguments<typeof options>;

export async function run(given: Given, io: CommandIo): Promise<number> {
  const { settings, target, only } = await readCall(given, io);
  const context = new ProbeContext({ ...settings, now: Date.now });
  const found = await runConformance(context, target, only);
  const subject = { url: target.url.href, profile: context.profile };
  printResult(io, given.values.json, reportJson(subject, found), reportText(subject, found));
  if (found.end !== 'complete') io.stderr.write(`${adviceOn(found)}\n`);
  return exitCode(found);
}

/** @throws {@link UsageError} with every problem of the arguments */
async function readCall({ values, positionals: [address, ...more] }: Given, { env }: CommandIo) {
  const { audience, event, kid, 'insecure-ca': caFile } = values;
  const [{ url, timeout }, { issuer, key }, profile, only, ca] = await readAll(
    () => {
      if (more.length > 0) throw new UsageError('Pass one URL.');
      return readTarget(address, values);
    },
    async () => readIssuerKey(values, env, 'sign'),
    () => readProfile(values.profile, event),
    () => (values.only === undefined ? undefined : oneOf(PROBE_GROUPS, values.only, '--only')),
    async () => (caFile === undefined ? undefined : readAuthority(caFile)),
  );
  return {
    settings: { profile, issuer, audience, event, kid, signer: signerOf(key) },
    target: { url, timeout, ca },
    only,
  };
}

async function readAuthority(file: string): Promise<string> {
  const text = (await readContent(file)).toString();
  if (areCertificates(text)) return text;
  throw new UsageError('--insecure-ca must be a file with a certificate in PEM.');
}

function readProfile(name: string, event: string): ConformanceProfile {
  const profile = oneOf(CONFORMANCE_PROFILES, name, '--profile');
  if (isEventName(event, profile)) return profile;
  throw new UsageError('--event must be the name of an event, such as order.created.');
}

function oneOf<T extends string>(all: readonly T[], value: string, option: string): T {
  const found = all.find((one) => one === value);
  if (found !== undefined) return found;
  throw new UsageError(`${option} must be one of ${all.join(', ')}.`);
}

function adviceOn({ end, reason, clockSkew = 0 }: ConformanceRun): string {
  if (end === 'unreachable') {
    return `The receiver is unreachable: ${reason}. Check the URL and --timeout.`;
  }
  const clock = Math.abs(clockSkew) > 1 ? ` Its clock differs by ${clockSkew} s.` : '';
  return `Stopped: ${reason}. A receiver that refuses a valid event cannot be tested.${clock} Check URL, secret, issuer, audience, kid, profile and the clocks. If it refuses the event or its data, pass --event with an event that it accepts and does not validate.`;
}

function exitCode({ end, results }: ConformanceRun): number {
  if (end === 'unreachable') return UNREACHABLE;
  const failed = results.some(
    ({ verdict, probe }) => verdict === 'fail' || (verdict === 'error' && probe.level === 'must'),
  );
  return end === 'refused' || failed ? FAILED : 0;
}
