/**
 * Compares variants on a noisy machine. A variant and the baseline alternate (ABBA) in slices of one or two milliseconds,
 * and the result is the ratio of their CPU times over a round of slices. The speed of a shared machine changes within
 * hundredths of a second, and slices this short expose both sides to the same changes. The baseline is also compared with
 * itself, so that the report shows the measurement error.
 */

/** Target CPU time of a slice, in milliseconds. */
const SLICE = 1.5;
/** Number of slices of each side in a round. */
const SLICES = { full: 10, quick: 6 };
const ROUNDS = { full: 41, quick: 15 };
/** CPU time to warm a variant up, in milliseconds. */
const WARM_UP = { full: 250, quick: 100 };

/**
 * @param title subject of the comparison
 * @param variants `{ name: () => unknown | Promise<unknown> }`, the baseline first; each throws if its own check fails
 */
export async function compare(title, variants, { quick = false } = {}) {
  const mode = quick ? 'quick' : 'full';
  const runs = [];
  for (const [name, run] of Object.entries(variants)) {
    runs.push({ name, run, times: await timesFor(run, mode), pairs: [] });
  }
  const [base] = runs;
  for (let round = 0; round < ROUNDS[mode]; round++) {
    for (const variant of runs) {
      let [own, beside] = [0, 0];
      for (let slice = 0; slice < SLICES[mode]; slice++) {
        const baseFirst = (slice + round) % 2 === 0;
        if (baseFirst) beside += await microseconds(base);
        own += await microseconds(variant);
        if (!baseFirst) beside += await microseconds(base);
      }
      variant.pairs.push({ own: own / SLICES[mode], ratio: beside / own });
    }
  }
  return report(title, base.name, runs);
}

/** Warms a variant up, and determines the number of calls in a slice. */
async function timesFor(run, mode) {
  let times = 1;
  for (;;) {
    const spent = (await microseconds({ run, times })) * times;
    if (spent >= WARM_UP[mode] * 1_000) {
      return Math.max(1, Math.round((times * SLICE * 1_000) / spent));
    }
    times = Math.ceil(times * Math.min(10, (WARM_UP[mode] * 1_100) / Math.max(spent, 1)));
  }
}

/** Average CPU time of a call in a slice. */
async function microseconds({ run, times }) {
  const before = process.cpuUsage();
  const first = run();
  if (first instanceof Promise) {
    await first;
    for (let i = 1; i < times; i++) await run();
  } else {
    for (let i = 1; i < times; i++) run();
  }
  const { user, system } = process.cpuUsage(before);
  return (user + system) / times;
}

/**
 * Prints and returns a row for each variant.
 *
 * @param runs `{ name, pairs: [{ own, ratio }] }`: `own` in microseconds; `ratio` is the baseline's time divided by it
 * @param what the kind of time that is measured
 */
export function report(title, baseline, runs, what = 'CPU') {
  const rows = runs.map(({ name, pairs }) => {
    const ratios = sorted(pairs.map(({ ratio }) => ratio));
    const at = (share) => ratios[Math.round((ratios.length - 1) * share)];
    const microseconds = at50(sorted(pairs.map(({ own }) => own)));
    return {
      name,
      microseconds,
      ratio: at(0.5),
      low: at(0.25),
      high: at(0.75),
      band: bandOf(ratios),
    };
  });
  console.log(`\n${title}`);
  console.log(
    `  speed as a multiple of "${baseline}", middle half of the rounds; two equal runs: ${spread(rows[0])}`,
  );
  for (const row of rows) {
    console.log(
      `  ${row.name.padEnd(38)} ${row.ratio.toFixed(3).padStart(7)}  (${spread(row)})  ${row.microseconds.toFixed(2).padStart(9)} µs ${what}`,
    );
  }
  return { title, unit: 'speed as a multiple', baseline, rows };
}

function bandOf(ratios) {
  // Ranks of the approximate 95 % confidence interval of the median of n values.
  const half = Math.sqrt(ratios.length);
  const at = (index) => ratios[Math.min(ratios.length - 1, Math.max(0, Math.round(index)))];
  return [at((ratios.length - 1) / 2 - half), at((ratios.length - 1) / 2 + half)];
}

function spread({ low, high }) {
  return `${low.toFixed(2)}–${high.toFixed(2)}`;
}

function sorted(values) {
  return values.toSorted((a, b) => a - b);
}

function at50(values) {
  return values[Math.floor(values.length / 2)];
}
