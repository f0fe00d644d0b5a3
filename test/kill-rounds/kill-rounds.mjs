import { ScriptProcess } from '../fixtures/child-process.mjs';

const PROCESS = new URL('queue.process.mjs', import.meta.url);
/** Deliveries that each process sets out to record; no process lives long enough to deliver them all. */
const EACH = 200;
/** Milliseconds without a line, once everything was delivered, after which nothing more is expected. */
const SILENCE = 2_000;
/** Milliseconds without a line after which what is outstanding is lost: longer than any lease. */
const PATIENCE = 60_000;

/** Runs a process until `done` says so of a line, then kills it without a chance to clean up. */
async function runUntil(settings, done) {
  const child = new ScriptProcess(PROCESS, settings, (word, id) => {
    if (done(word, id)) void child.kill();
  });
  await child.ended();
}

/**
 * Kills a publisher again and again, then lets one finish what the others have left.
 *
 * @param place - where the engine is, as `openQueue` takes it
 * @returns how many were `acknowledged`, which of them were `lost`, and how many were delivered `twice`
 */
export async function killRounds(engine, place, rounds) {
  const acknowledged = new Set();
  const delivered = new Map();
  const note = (word, id) => {
    if (word === 'acknowledged') acknowledged.add(id);
    if (word === 'delivered') delivered.set(id, (delivered.get(id) ?? 0) + 1);
  };
  for (let round = 0; round < rounds; round++) {
    let lines = 0;
    // At another point of its work each time, and never when all of it is done.
    const last = 60 + ((round * 97) % 250);
    const settings = { engine, place, first: round * EACH, count: EACH };
    await runUntil(settings, (word, id) => {
      note(word, id);
      return ++lines >= last;
    });
  }
  const lost = () => [...acknowledged].filter((id) => !delivered.has(id));
  // What was only in a process went with it, and nothing would ever be said of it.
  if (engine !== 'memory') await finish({ engine, place, first: 0, count: 0 }, note, lost);
  const twice = [...delivered.values()].filter((count) => count > 1).length;
  return { engine, kills: rounds, acknowledged: acknowledged.size, lost: lost(), twice };
}

/** A last process, which is killed when it has delivered what there is and then said nothing for a while. */
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
