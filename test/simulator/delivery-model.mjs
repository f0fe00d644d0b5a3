// The states of a delivery. The traces of the simulator are checked against it.

/**
 * By state: what may happen to a delivery, and the state that follows. An expired lease is seen when the delivery is claimed again.
 * `expired` is stored as dead.
 */
export const STATES = {
  waiting: { claim: 'claimed', redeliver: 'waiting' },
  retrying: { claim: 'claimed', redeliver: 'waiting' },
  paused: { claim: 'claimed', redeliver: 'waiting' },
  claimed: {
    reclaim: 'claimed',
    deliver: 'delivered',
    retry: 'retrying',
    pause: 'paused',
    // No attempt was made: the endpoint is overloaded, or the handler threw.
    defer: 'waiting',
    die: 'dead',
    expire: 'expired',
  },
  dead: { redeliver: 'waiting' },
  expired: { redeliver: 'waiting' },
  delivered: {},
};

const STATUS = { delivered: 'delivered', dead: 'dead', expired: 'dead' };

/** What a settlement did to a delivery. */
export function stepOf({ status, attempt, reason }) {
  if (status === 'delivered') return 'deliver';
  if (status === 'dead') return reason === 'expired' ? 'expire' : 'die';
  if (attempt !== undefined) return 'retry';
  return reason === 'endpoint_paused' ? 'pause' : 'defer';
}

/**
 * Follows the stored attempts of a delivery through the model. A run that was killed has stored none.
 *
 * @param attempts - in their order: whether each succeeded
 * @returns the state after them, or `undefined` if the model does not allow them
 */
export function stateAfter(attempts) {
  let state = 'waiting';
  for (const hasSucceeded of attempts) {
    state = STATES[STATES[state]?.claim]?.[hasSucceeded ? 'deliver' : 'retry'];
  }
  return state;
}

/** Follows every delivery of a table, and compares its row with what the model expects. */
export class DeliveryModel {
  #deliveries = new Map();

  constructor(simulation) {
    this.simulation = simulation;
  }

  record(row) {
    this.simulation.check(
      ![...this.#deliveries.values()].some(({ id }) => id === row.id),
      'a delivery is recorded once',
      () => `${row.event_id} was recorded twice`,
    );
    this.#deliveries.set(row.seq, { id: row.id, state: 'waiting', attempts: 0, died: 0 });
  }

  /** A claim was not committed. */
  rollBack(row) {
    const delivery = this.#deliveries.get(row.seq);
    Object.assign(delivery, delivery.before);
  }

  stateOf(row) {
    return this.#deliveries.get(row.seq).state;
  }

  /** @param step - `claim`, `redeliver`, or a step of {@link stepOf} */
  step(row, step) {
    const delivery = this.#deliveries.get(row.seq);
    const from = delivery.state;
    const taken = step === 'claim' && from === 'claimed' ? 'reclaim' : step;
    const to = STATES[from][taken];
    const { simulation } = this;
    simulation.check(
      to !== undefined,
      'a delivery takes the steps of the model',
      () => `${row.event_id} is ${from}: ${taken}`,
    );
    if (step === 'claim') {
      const { attempts, died } = delivery;
      delivery.before = { state: from, attempts, died };
    }
    if (taken === 'reclaim' && (row.receiver ?? null) !== null) {
      delivery.attempts++;
      delivery.died++;
    }
    if (taken === 'retry' || taken === 'deliver') delivery.attempts++;
    if (taken === 'die') delivery.attempts = row.attempts;
    if (taken === 'redeliver' && STATUS[from] === 'dead') delivery.attempts = 0;
    if (to !== 'claimed') {
      // A process that claims what it still runs has not died, so it does not count that run.
      delivery.attempts -= Math.min(delivery.died, Math.max(0, delivery.attempts - row.attempts));
      delivery.died = 0;
    }
    delivery.state = to;
    simulation.check(
      row.attempts === delivery.attempts,
      'attempts are counted',
      () => `${row.event_id} has ${row.attempts} attempts after ${taken}, not ${delivery.attempts}`,
    );
    simulation.check(
      row.status === (STATUS[to] ?? 'pending') && (to === 'dead' || row.due < Infinity),
      'a delivery takes the steps of the model',
      () => `${row.event_id} is stored as ${row.status} after ${taken}`,
    );
  }
}
