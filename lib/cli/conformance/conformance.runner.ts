import { withoutTokens } from '../../token/decoding.js';
import { exchange, type ExchangeTarget } from './http-exchange.js';
import type { ProbeContext } from './probe.context.js';
import type {
  ConformanceProfile,
  Probe,
  ProbeAnswer,
  ProbeGroup,
  ProbeOutcome,
  ProbeResult,
  ProbeVerdict,
} from './probe.interface.js';
import { ACCEPTS_PROBES } from './probes/accepts.probes.js';
import { BODY_PROBES } from './probes/body.probes.js';
import { CLAIM_PROBES } from './probes/claims.probes.js';
import { errorCode } from './probes/define-probe.js';
import { HTTP_PROBES } from './probes/http.probes.js';
import { REPLAY_PROBES } from './probes/replay.probes.js';
import { SIGNATURE_PROBES } from './probes/signature.probes.js';

type ConformanceEnd =
  /** Every probe ran. */
  | 'complete'
  /** A valid event was refused, so other refusals would prove nothing. */
  | 'refused'
  /** The receiver did not answer. */
  | 'unreachable';

export interface ConformanceRun {
  readonly end: ConformanceEnd;
  /** Why it ended early. */
  readonly reason?: string;
  /** Seconds by which the receiver's clock is ahead, according to its Date header. */
  readonly clockSkew?: number;
  readonly results: readonly ProbeResult[];
}

/** Runs the probes of a wire format one by one; if the first, a valid event, is refused, the others are not run. */
export async function runConformance(
  context: ProbeContext,
  target: ExchangeTarget,
  only?: ProbeGroup,
): Promise<ConformanceRun> {
  const [guard, ...probes] = probesFor(context.profile, only);
  const sentAt = context.settings.now();
  let outcome: ProbeOutcome;
  try {
    outcome = (await exchange(target, guard!.make(context)!))[0]!;
  } catch (error) {
    return { end: 'unreachable', reason: failureOf(error), results: [] };
  }
  if (typeof outcome === 'string') {
    const reason = guard!.expect([outcome], context)!;
    return { end: 'unreachable', reason, results: [] };
  }
  const clockSkew = skew(outcome.headers.get('date'), sentAt);
  const first = judge(guard!, [outcome], context);
  const known = clockSkew === undefined ? {} : { clockSkew };
  if (first.verdict !== 'pass') {
    const reason = `a valid event was answered with ${outcome.status}${errorCode(outcome)}${challenge(outcome)}`;
    return { end: 'refused', reason, ...known, results: [first] };
  }
  const results = [first];
  for (const probe of probes) results.push(await run(probe, context, target));
  return { end: 'complete', ...known, results };
}

async function run(
  probe: Probe,
  context: ProbeContext,
  target: ExchangeTarget,
): Promise<ProbeResult> {
  const requests = probe.make(context);
  if (requests === undefined) {
    return {
      probe,
      verdict: 'skipped',
      detail: 'not applicable with these settings',
      statuses: [],
    };
  }
  try {
    return judge(probe, await exchange(target, requests), context);
  } catch (error) {
    return { probe, verdict: 'error', detail: failureOf(error), statuses: [] };
  }
}

function judge(
  probe: Probe,
  outcomes: readonly ProbeOutcome[],
  context: ProbeContext,
): ProbeResult {
  const problem = probe.expect(outcomes, context);
  const failed: ProbeVerdict = probe.level === 'must' ? 'fail' : 'warn';
  return {
    probe,
    verdict: problem === undefined ? 'pass' : failed,
    detail: problem ?? '',
    statuses: outcomes.flatMap((outcome) => (typeof outcome === 'string' ? [] : [outcome.status])),
  };
}

/** All probes. The first is a valid event: if it is refused, the other refusals prove nothing. */
const ALL_PROBES: readonly Probe[] = [
  ...ACCEPTS_PROBES,
  ...SIGNATURE_PROBES,
  ...CLAIM_PROBES,
  ...BODY_PROBES,
  ...REPLAY_PROBES,
  ...HTTP_PROBES,
];

/** The probes of a wire format, or the first probe and those of one group. */
export function probesFor(profile: ConformanceProfile, only?: ProbeGroup): readonly Probe[] {
  return ALL_PROBES.filter(
    ({ profiles, group }, index) =>
      profiles.includes(profile) && (only === undefined || group === only || index === 0),
  );
}

/** Characters of a receiver's challenge that are shown. */
const MAX_CHALLENGE = 200;

/** The receiver's challenge, reduced to printable characters and without tokens. */
function challenge({ headers }: ProbeAnswer): string {
  const text = (headers.get('www-authenticate') ?? '').replace(/[^\x20-\x7e]/g, '?');
  return text === '' ? '' : `, with ${withoutTokens(text).slice(0, MAX_CHALLENGE)}`;
}

/** The message of a socket error contains a name and an address, but nothing that was sent. */
function failureOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return code === undefined ? message : `${code}: ${message}`;
}

function skew(date: string | undefined, sentAt: number): number | undefined {
  const time = Date.parse(date ?? '');
  // The header has whole seconds, so less than one is no difference.
  return Number.isNaN(time) ? undefined : Math.trunc((time - sentAt) / 1_000);
}
