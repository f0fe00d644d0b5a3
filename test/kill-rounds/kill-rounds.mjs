import { readFile, writeFile } from 'node:fs/promises';
import { ScriptProcess } from '../fixtures/child-process.mjs';

const PROCESS = new URL('queue.process.mjs', import.meta.url);
/** Deliveries that each process tries to record; it is killed before it has delivered all of them. */
const EACH = 200;
/** Milliseconds without output after which the last process is done, if everything was delivered. */
const SILENCE = 2_000;
/** The same while deliveries are outstanding: longer than any lease. */
const PATIENCE = 60_000;

/**
 * Kills publishers in each round, then lets a last one deliver the rest. Deliveries with an ordering key must start in the
 * order of their numbers: an attempt after that of a higher number is an inversion.
 *
 * A delivery arrives twice if its process is killed between the attempt and the record of its outcome. The number
 * therefore depends on how many attempts run at once, and is reported with it.
 *
 * @param place - options for `openQueue`
 * @param how - `rounds`; `replicas`: processes at once; `ledger`: a file for the attempts of deliveries with a key
 */
export async function killRounds(engine, place, { rounds, replicas, ledger }) {
  await writeFile(ledger, '');
  const acknowledged = new Set();
  const delivered = new Map();
  const note = (word, id) => {
    if (word === 'acknowledged') acknowledged.add(id);
    if (word === 'delivered') delivered.set(id, (delivered.get(id) ?? 0) + 1);
  };
  for (let round = 0; round < rounds; round++) {
    const processes = Array.from({ length: replicas }, (_, replica) => {
      const number = round * replicas + replica;
      // Each process is killed at another point of its work.
      const last = 60 + ((number * 97) % 250);
      const settings = { engine, place, ledger, first: number * EACH, count: EACH, last };
      return new ScriptProcess(PROCESS, settings, note).ended();
    });
    await Promise.all(processes);
  }
  const lost = () => [...acknowledged].filter((id) => !delivered.has(id));
  // A queue in memory lost its deliveries with its process.
  if (engine !== 'memory') await finish({ engine, place, ledger, first: 0, count: 0 }, note, lost);
  const twice = [...delivered.values()].filter((count) => count > 1).length;
  const { concurrency } = place;
  return {
    engine,
    concurrency,
    kills: rounds * replicas,
    acknowledged: acknowledged.size,
    lost: lost(),
    twice,
    ...(await orderOf(ledger)),
  };
}

/** Counts the attempts of deliveries with a key, and those that started after one with a higher number. */
async function orderOf(ledger) {
  const last = new Map();
  const lines = (await readFile(ledger, 'utf8')).split('\n').filter((line) => line !== '');
  let inversions = 0;
  for (const line of lines) {
    const [key, sequence] = line.split(' ');
    const highest = last.get(key) ?? 0;
    if (Number(sequence) < highest) inversions++;
    last.set(key, Math.max(highest, Number(sequence)));
  }
  return { ordered: lines.length, inversions };
}

/** Runs a last process until it has been silent for a while. */
async function finish(settings, note, lost) {
  let patience;
  const wait = () => {
    clearTimeout(patience);
    patience = setTimeout(() => void child.kill(), lost().length === 0 ? SILENCE : PATIENCE);
  };
  const child = new ScriptProcess(PROCESS, settings, (word, id) => {
    note(word, id);
    wait();
  });
  wait();
  await child.ended();
  clearTimeout(patience);
}
