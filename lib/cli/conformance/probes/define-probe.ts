import type { Forgery, ProbeContext } from '../probe.context.js';
import {
  CONFORMANCE_PROFILES,
  type Expectation,
  type Probe,
  type ProbeAnswer,
  type ProbeGroup,
  type ProbeOutcome,
  type ProbeRequest,
} from '../probe.interface.js';

/** One request or several; `undefined` if the probe does not apply. */
type Make = (context: ProbeContext) => ProbeRequest | readonly ProbeRequest[] | undefined;

/** Overrides of a probe; by default it is a `must` in every wire format. */
type More = Partial<Pick<Probe, 'level' | 'profiles' | 'expect'>>;

type Define = (name: string, title: string, reason: string, make: Make | Forgery) => Probe;

/** Defines the probes of a group: requests that must be accepted, and requests that must be refused. */
export function probesOf(
  group: ProbeGroup,
): (...more: readonly More[]) => { readonly accepted: Define; readonly refused: Define } {
  return (...more) => {
    const define =
      (expect: Expectation): Define =>
      (name, title, reason, make) => ({
        id: `${group}.${name}`,
        group,
        title,
        reason,
        profiles: CONFORMANCE_PROFILES,
        level: 'must',
        expect,
        ...(Object.assign({}, ...more) as More),
        make: (context) => {
          const made = typeof make === 'function' ? make(context) : context.request(make);
          if (made === undefined) return undefined;
          return Array.isArray(made) ? (made as ProbeRequest[]) : [made as ProbeRequest];
        },
      });
    return { accepted: define(ACCEPTED), refused: define(REFUSED) };
  };
}

/** Adds a member at the beginning of a JSON object. */
export function withMember(member: string, json: string): string {
  return `{${member},${json.slice(1)}`;
}

/** The reason of probes with a repeated member. */
export const REPEATED = 'Parsers disagree on the value of a repeated member.';

type Formats = Pick<Probe, 'profiles'>;

export const DEFAULT_ONLY: Formats = { profiles: ['webhook-token'] };

export const DRAFT_00: Formats = { profiles: ['swt-draft-00'] };
export const DRAFT_02: Formats = { profiles: ['swt-draft-02'] };
export const DRAFTS: Formats = { profiles: ['swt-draft-00', 'swt-draft-02'] };

/** Wire formats that send small events inline by HEAD. */
export const INLINE: Formats = { profiles: ['webhook-token', 'swt-draft-00'] };

/** Wire formats that tolerate clock differences. */
export const TOLERANT: Formats = { profiles: ['webhook-token', 'swt-draft-02'] };

/** Wire formats that have the digest in `webhook.hash`. */
export const HASHED = TOLERANT;

/** Recommended, but not required. */
export const ADVISED = { level: 'should' } as const;

/** The last request was accepted. */
const ACCEPTED: Expectation = (outcomes) => notAccepted(outcomes.at(-1)!);

/** Every request was accepted. */
export const ALL_ACCEPTED: Expectation = (outcomes) =>
  outcomes.map(notAccepted).find((problem) => problem !== undefined);

/** The last request was refused with a 4xx, and all before it were accepted. */
export const REFUSED: Expectation = (outcomes) =>
  outcomes
    .slice(0, -1)
    .map(notAccepted)
    .find((problem) => problem !== undefined) ?? notRefused(outcomes.at(-1)!);

/** Every request was refused with a 4xx. */
export const ALL_REFUSED: Expectation = (outcomes) =>
  outcomes.map(notRefused).find((problem) => problem !== undefined);

/** The last request was answered with one of these statuses. */
export function answeredWith(...statuses: readonly number[]): Expectation {
  return answered(({ status }) =>
    statuses.includes(status) ? undefined : `answered with ${status}, not ${statuses.join(' or ')}`,
  );
}

/** The last request was answered, and the answer follows a rule. */
export function answered(rule: (answer: ProbeAnswer) => string | undefined): Expectation {
  return (outcomes) => {
    const last = outcomes.at(-1)!;
    return typeof last === 'string' ? unanswered(last) : rule(last);
  };
}

/** All expectations hold; reports the first that does not. */
export function all(...expectations: readonly Expectation[]): Expectation {
  return (outcomes, context) => {
    for (const expectation of expectations) {
      const problem = expectation(outcomes, context);
      if (problem !== undefined) return problem;
    }
    return undefined;
  };
}

function notAccepted(outcome: ProbeOutcome): string | undefined {
  if (typeof outcome === 'string') return unanswered(outcome);
  const { status } = outcome;
  if (status >= 200 && status < 300) return undefined;
  return `refused with ${status}${errorCode(outcome)}`;
}

function notRefused(outcome: ProbeOutcome): string | undefined {
  if (typeof outcome === 'string') return unanswered(outcome);
  const { status } = outcome;
  if (status >= 400 && status < 500) return undefined;
  return status >= 200 && status < 300
    ? `accepted with ${status}`
    : `answered with ${status}, not 4xx`;
}

/** Describes why there is no answer. */
export function unanswered(outcome: 'closed' | 'timeout'): string {
  return outcome === 'closed'
    ? 'the connection was closed without an answer'
    : 'no answer arrived in time';
}

/** The receiver's code of a refusal, if it has the known form. */
export function errorCode({ headers }: ProbeAnswer): string {
  const code = headers.get('webhook-error');
  return code !== undefined && /^[a-z_]{1,40}$/.test(code) ? ` (${code})` : '';
}
