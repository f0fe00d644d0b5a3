import type { JSX } from 'preact';
import type { ConsoleStats, StatsBucket, StatsCounts } from '../console-api.js';
import type { Query } from './api.js';
import { clockTime, dateTime, duration, now, number } from './format.js';
import { Table } from './table.js';
import { linkTo } from './route.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.chart;

/** A range that charts show, and the length of its steps in milliseconds. */
export const STEPS = { '1h': 120_000, '24h': 1_800_000, '7d': 14_400_000 } as const;
const LENGTHS = { '1h': 30, '24h': 48, '7d': 42 } as const;

export type Range = keyof typeof STEPS;

/** The request of the last steps, up to the end of the one that has begun, so that all viewers ask for the same. */
export function statsRequest({ range, ...filter }: Query & { readonly range: Range }): Query {
  const step = STEPS[range];
  const to = Math.ceil(now() / step) * step;
  const from = new Date(to - LENGTHS[range] * step).toISOString();
  return { ...filter, from, to: new Date(to).toISOString(), step: String(step) };
}

const STATES = ['delivered', 'pending', 'failed'] as const;
type State = (typeof STATES)[number];

const WIDTH = 1_000;
const HEIGHT = 150;

/** Deliveries over time as stacked bars, and the same numbers as a table. */
export function Chart({
  stats: { buckets },
  range,
  filter = {},
}: {
  stats: ConsoleStats;
  range: Range;
  /** Of the lists that its bars open. */
  filter?: Readonly<Record<string, string>>;
}): JSX.Element {
  const highest = Math.max(...buckets.map(sumOf), 1);
  const width = WIDTH / buckets.length;
  const until = (at: string): string => new Date(Date.parse(at) + STEPS[range]).toISOString();
  const labels = [0, 1, 2, 3].map((n) => buckets[Math.floor((n * buckets.length) / 4)]!.at);
  const open = (at: string): void => {
    location.hash = linkTo('deliveries', undefined, { ...filter, since: at, until: until(at) });
  };
  return (
    <figure class="chart">
      <div class="legend" aria-hidden="true">
        {STATES.map((state) => (
          <span key={state} class={state}>
            {TEXT.states[state]}
          </span>
        ))}
        <span class="scale">{TEXT.highest(highest)}</span>
      </div>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={TEXT.label}
      >
        {buckets.map((bucket, index) => (
          <g key={bucket.at} onClick={() => open(bucket.at)}>
            <title>{describe(bucket)}</title>
            <rect class="hit" x={index * width} y={0} width={width} height={HEIGHT} />
            <Bar counts={bucket} x={index * width} width={width} height={HEIGHT} of={highest} />
          </g>
        ))}
      </svg>
      <div class="axis" aria-hidden="true">
        {labels.map((at) => (
          <span key={at}>{clockTime(at)}</span>
        ))}
        <span>{TEXT.now}</span>
      </div>
      <details>
        <summary>{TEXT.asTable}</summary>
        <Table
          caption={TEXT.label}
          rows={buckets.filter((bucket) => sumOf(bucket) > 0).toReversed()}
          keyOf={({ at }) => at}
          columns={[
            { name: TEXT.from, cell: ({ at }) => <time dateTime={at}>{dateTime(at)}</time> },
            ...STATES.map((state) => ({
              name: TEXT.states[state],
              isNumber: true,
              cell: (bucket: StatsBucket) => number(bucket[state]),
            })),
            {
              name: TEXT.median,
              isNumber: true,
              cell: ({ p50Ms }) => p50Ms !== undefined && duration(p50Ms),
            },
            {
              name: TEXT.p95,
              isNumber: true,
              cell: ({ p95Ms }) => p95Ms !== undefined && duration(p95Ms),
            },
          ]}
        />
      </details>
    </figure>
  );
}

/** The bars of one endpoint, without numbers, beside which a text says the same. */
export function Sparkline({
  series: { delivered, failed, pending },
}: {
  series: ConsoleStats['endpoints'][number];
}): JSX.Element {
  const bars = delivered.map((count, index) => ({
    delivered: count,
    failed: failed[index]!,
    pending: pending[index]!,
  }));
  const highest = Math.max(...bars.map(sumOf), 1);
  return (
    <svg class="spark" viewBox="0 0 240 40" preserveAspectRatio="none" aria-hidden="true">
      {bars.map((counts, index) => (
        <Bar
          key={index}
          counts={counts}
          x={(index * 240) / bars.length}
          width={240 / bars.length}
          height={40}
          of={highest}
        />
      ))}
    </svg>
  );
}

function Bar({
  counts,
  x,
  width,
  height,
  of: highest,
}: {
  counts: StatsCounts;
  x: number;
  width: number;
  height: number;
  of: number;
}): JSX.Element {
  let y = height;
  return (
    <>
      {STATES.map((state) => {
        const size = (counts[state] / highest) * height;
        if (size === 0) return undefined;
        // One of a million must be seen.
        const shown = Math.max(size, 1.5);
        y -= shown;
        return (
          <rect
            key={state}
            class={state}
            x={x + width * 0.12}
            y={Math.max(y, 0)}
            width={width * 0.76}
            height={shown}
          />
        );
      })}
    </>
  );
}

function sumOf({ delivered, failed, pending }: Pick<StatsCounts, State>): number {
  return delivered + failed + pending;
}

function describe(bucket: StatsBucket): string {
  const counts = STATES.filter((state) => bucket[state] > 0).map(
    (state) => `${number(bucket[state])} ${TEXT.states[state]}`,
  );
  return `${clockTime(bucket.at)}: ${counts.join(', ') || TEXT.none}`;
}
