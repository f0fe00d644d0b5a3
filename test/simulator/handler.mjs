// The handler of the receiving application: one effect in its database.
import { Transaction } from '../../build/lib/testing/simulation/transaction.js';
import { LEASE } from './applications.mjs';

/** Handles an event; half of the events are handled in one transaction with their record. */
export async function handle(webhook, process, invariants) {
  const { simulation } = process;
  const event = invariants.eventOf(webhook.id);
  const run = invariants.handlerStarts(event, process);
  try {
    const isSlow = simulation.happens('handler is slow', run.name);
    const ms = isSlow
      ? simulation.between(`slow ${run.name}`, LEASE, 4 * LEASE)
      : simulation.between(`work ${run.name}`, 1, 400);
    await new Promise((resolve) => void simulation.after(ms, process, resolve));
    if (simulation.happens('handler fails', run.name)) throw new Error('simulated failure');
    if (event.isTransactional) await handleInTransaction(event, webhook, run, invariants);
    else await process.call('database', 'insert', () => invariants.effect(event));
  } finally {
    run.hasEnded = true;
    simulation.note(process, `${run.name} ends`);
  }
}

async function handleInTransaction(event, webhook, { name, process }, invariants) {
  const { simulation } = process;
  const tx = new Transaction(process);
  tx.onCommit(() => invariants.effect(event));
  try {
    await webhook.commit(tx);
    if (simulation.happens('handler fails', `${name} in its transaction`)) {
      throw new Error('simulated failure in the transaction');
    }
    await process.call('database', 'commit', () => {
      tx.commit();
    });
  } finally {
    // The connection is closed, and the server rolls back what is open.
    simulation.after(1, undefined, () => tx.rollBack());
  }
}
