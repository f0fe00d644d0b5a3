import type { ConformanceRun } from './conformance.runner.js';
import type { ProbeResult, ProbeVerdict } from './probe.interface.js';

const VERDICTS: readonly ProbeVerdict[] = ['pass', 'warn', 'fail', 'error', 'skipped'];

/** The receiver under test. */
interface ReportSubject {
  readonly url: string;
  readonly profile: string;
}

export function reportJson(subject: ReportSubject, run: ConformanceRun): object {
  return {
    ...subject,
    end: run.end,
    reason: run.reason,
    clockSkewSeconds: run.clockSkew,
    totals: totals(run.results),
    probes: run.results.map(({ probe, verdict, detail, statuses }) => ({
      id: probe.id,
      group: probe.group,
      level: probe.level,
      title: probe.title,
      reason: probe.reason,
      verdict,
      detail,
      statuses,
    })),
  };
}

/** Formats a run as a table with the reasons of failures and totals; empty if no probe ran. */
export function reportText(subject: ReportSubject, run: ConformanceRun): string {
  if (run.results.length === 0) return '';
  const width = Math.max(0, ...run.results.map(({ probe }) => probe.id.length));
  const rows = run.results.map((result) => row(result, width));
  const counts = totals(run.results);
  const sums = VERDICTS.filter((verdict) => counts[verdict] > 0).map(
    (verdict) => `${counts[verdict]} ${verdict}`,
  );
  return [
    `${subject.profile} at ${subject.url}`,
    `Clock of the receiver: ${clock(run.clockSkew)}`,
    '',
    ...rows,
    '',
    `${run.results.length} ${run.results.length === 1 ? 'probe' : 'probes'}: ${sums.join(', ')}`,
    '',
  ].join('\n');
}

function row({ probe, verdict, detail }: ProbeResult, width: number): string {
  const line = `${verdict.padEnd(7)}  ${probe.id.padEnd(width)}  ${probe.title}`;
  if (detail === '') return line;
  const indent = ' '.repeat(7 + 2);
  return verdict === 'skipped'
    ? `${line} (${detail})`
    : `${line}\n${indent}${detail}. Rule: ${probe.reason}`;
}

function clock(skew: number | undefined): string {
  if (skew === undefined) return 'unknown, because it sends no Date header';
  if (skew === 0) return 'in sync';
  return `${Math.abs(skew)} s ${skew > 0 ? 'ahead' : 'behind'}`;
}

function totals(results: readonly ProbeResult[]): Record<ProbeVerdict, number> {
  const counts = { pass: 0, warn: 0, fail: 0, error: 0, skipped: 0 };
  for (const { verdict } of results) counts[verdict]++;
  return counts;
}
