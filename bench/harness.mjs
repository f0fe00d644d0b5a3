/**
 * Compares variants on a noisy machine: they take turns within one run, the order is reversed every other
 * round, and what counts is CPU time as a ratio to the first variant, pair by pair. The first variant runs
 * twice, so that the report can say how far two equal things lie apart here and now.
 */

/** Milliseconds of CPU time one turn should take. */
const TURN = { full: 120, quick: 25 };
const ROUNDS = { full: 15, quick: 5 };

/**
 * @param title what is compared
 * @param variants `{ name: () => unknown | Promise<unknown> }`, the baseline first; each throws when it fails its own check
 */
export async function compare(title, variants, { quick = false } = {}) {
  const names = Object.keys(variants);
  const baseline = names[0];
  const runs = [...names, AGAIN].map((name) => ({
    name,
    run: variants[name === AGAIN ? baseline : name],
  }));
  const mode = quick ? 'quick' : 'full';
  const count = new Map();
  for (const { name, run } of runs) count.set(name, await turnsFor(run, TURN[mode]));

  const samples = new Map(runs.map(({ name }) => [name, []]));
  for (let round = 0; round < ROUNDS[mode]; round++) {
    for (const { name, run } of round % 2 === 0 ? runs : runs.toReversed()) {
      samples.get(name).push(await microseconds(run, count.get(name)));
    }
  }
  return report(title, baseline, samples);
}

const AGAIN = 'the same again';

/** Warms a variant up, and finds how often it runs in a turn. */
async function turnsFor(run, turn) {
  let times = 1;
  for (;;) {
    const spent = (await microseconds(run, times)) * times;
    if (spent >= turn * 1_000) return times;
    times = Math.ceil(times * Math.min(10, (turn * 1_100) / Math.max(spent, 1)));
  }
}

/** CPU time of one call, averaged over a turn. */
async function microseconds(run, times) {
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

function report(title, baseline, samples) {
  const base = samples.get(baseline);
  const rows = [...samples].map(([name, values]) => {
    const ratios = values.map((value, round) => base[round] / value).toSorted((a, b) => a - b);
    return {
      name,
      microseconds: median(values.toSorted((a, b) => a - b)),
      ratio: median(ratios),
      low: ratios[0],
      high: ratios.at(-1),
    };
  });
  const again = rows.find(({ name }) => name === AGAIN);
  console.log(`\n${title}`);
  console.log(`  speed as a multiple of "${baseline}"; two equal runs: ${spread(again)}`);
  for (const row of rows.filter(({ name }) => name !== AGAIN)) {
    console.log(
      `  ${row.name.padEnd(34)} ${row.ratio.toFixed(3).padStart(7)}  (${spread(row)})  ${row.microseconds.toFixed(2).padStart(9)} µs CPU`,
    );
  }
  return { title, baseline, rows };
}

function spread({ low, high }) {
  return `${low.toFixed(2)}–${high.toFixed(2)}`;
}

function median(sorted) {
  return sorted[Math.floor(sorted.length / 2)];
}
