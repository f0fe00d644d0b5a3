import type { Expectation, ProbeAnswer, ProbeOutcome } from './probe.interface.js';

/** The last request was accepted. */
export const ACCEPTED: Expectation = (outcomes) => notAccepted(outcomes.at(-1)!);

/** Every request was accepted. */
export const ALL_ACCEPTED: Expectation = (outcomes) =>
  outcomes.map(notAccepted).find((fault) => fault !== undefined);

/** The last request was refused with a 4xx, and whatever came before it was accepted. */
export const REFUSED: Expectation = (outcomes) =>
  outcomes
    .slice(0, -1)
    .map(notAccepted)
    .find((fault) => fault !== undefined) ?? notRefused(outcomes.at(-1)!);

/** A refusal, with the status that senders can tell apart. */
export function refusedWith(...statuses: readonly number[]): Expectation {
  return answered(({ status }) =>
    statuses.includes(status) ? undefined : `answered ${status}, not ${statuses.join(' or ')}`,
  );
}

/** An answer, held against a rule of its own. */
export function answered(rule: (answer: ProbeAnswer) => string | undefined): Expectation {
  return (outcomes) => {
    const last = outcomes.at(-1)!;
    return typeof last === 'string' ? unanswered(last) : rule(last);
  };
}

/** All that must hold, the first fault counts. */
export function all(...expectations: readonly Expectation[]): Expectation {
  return (outcomes, context) => {
    for (const expectation of expectations) {
      const fault = expectation(outcomes, context);
      if (fault !== undefined) return fault;
    }
    return undefined;
  };
}

function notAccepted(outcome: ProbeOutcome): string | undefined {
  if (typeof outcome === 'string') return unanswered(outcome);
  const { status } = outcome;
  if (status >= 200 && status < 300) return undefined;
  return `refused with ${status}${said(outcome)}`;
}

function notRefused(outcome: ProbeOutcome): string | undefined {
  if (typeof outcome === 'string') return unanswered(outcome);
  const { status } = outcome;
  if (status >= 400 && status < 500) return undefined;
  return status >= 200 && status < 300 ? `accepted with ${status}` : `answered ${status}, not 4xx`;
}

/** What happened in place of an answer. */
export function unanswered(outcome: 'closed' | 'timeout'): string {
  return outcome === 'closed'
    ? 'the connection was closed without an answer'
    : 'no answer came in time';
}

/** The receiver's own word for a refusal, where it gives one of the known form. */
export function said({ headers }: ProbeAnswer): string {
  const code = headers.get('webhook-error');
  return code !== undefined && /^[a-z_]{1,40}$/.test(code) ? ` (${code})` : '';
}
