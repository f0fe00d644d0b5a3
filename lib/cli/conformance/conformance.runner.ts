import { said } from './expectations.js';
import { exchange, type ExchangeTarget } from './http-exchange.js';
import type { ProbeContext } from './probe.context.js';
import type {
  Probe,
  ProbeAnswer,
  ProbeGroup,
  ProbeOutcome,
  ProbeResult,
  ProbeVerdict,
} from './probe.interface.js';
import { probesFor } from './probes/all-probes.js';

/** How a run ended. */
type ConformanceEnd =
  /** Every probe was made. */
  | 'complete'
  /** A plain event was refused, so that the other refusals would say nothing. */
  | 'refused'
  /** No answer came from there. */
  | 'unreachable';

/** What a run found. */
export interface ConformanceRun {
  readonly end: ConformanceEnd;
  /** In words, where it did not come to its end. */
  readonly reason?: string;
  /** Seconds by which the receiver's clock is ahead, by its Date header. */
  readonly clockSkew?: number;
  readonly results: readonly ProbeResult[];
}

/** Characters of what a receiver says that are shown. */
const MOST_WORDS = 200;

/** Makes the probes of a format one after the other; the first one decides whether the others are worth it. */
export async function runConformance(
  context: ProbeContext,
  target: ExchangeTarget,
  only?: ProbeGroup,
): Promise<ConformanceRun> {
  const [guard, ...probes] = probesFor(context.profile, only);
  const asked = context.settings.now();
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
  const clockSkew = skew(outcome.headers.get('date'), asked);
  const first = judge(guard!, [outcome], context);
  const known = clockSkew === undefined ? {} : { clockSkew };
  if (first.verdict !== 'pass') {
    const reason = `a plain event was answered ${outcome.status}${said(outcome)}${challenge(outcome)}`;
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
      detail: 'cannot be asked with these settings',
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
  const fault = probe.expect(outcomes, context);
  const failed: ProbeVerdict = probe.level === 'must' ? 'fail' : 'warn';
  return {
    probe,
    verdict: fault === undefined ? 'pass' : failed,
    detail: fault ?? '',
    statuses: outcomes.flatMap((outcome) => (typeof outcome === 'string' ? [] : [outcome.status])),
  };
}

/** The receiver's challenge: its words, so only what can be printed, and nothing like a token. */
function challenge({ headers }: ProbeAnswer): string {
  const text = (headers.get('www-authenticate') ?? '')
    .replace(/[^\x20-\x7e]/g, '?')
    .replace(/[\w-]{8,}\.[\w-]{8,}\.[\w-]*/g, '<token>')
    .slice(0, MOST_WORDS);
  return text === '' ? '' : `, with ${text}`;
}

/** The message of a socket's error holds a name and an address, and nothing that was sent. */
function failureOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return code === undefined ? message : `${code}: ${message}`;
}

function skew(date: string | undefined, asked: number): number | undefined {
  const told = Date.parse(date ?? '');
  return Number.isNaN(told) ? undefined : Math.round((told - asked) / 1_000);
}
