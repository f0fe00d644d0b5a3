// Faults that the simulator must find: each replaces a part of the world by one that breaks a promise.
import { MemoryEndpointStore } from '../../build/lib/index.js';
import { Network } from '../../build/lib/testing/simulation/network.js';
import { ReplayServer } from '../../build/lib/testing/simulation/replay-server.js';
import { DeliveryTable, withPayloads } from './delivery-table.mjs';
import { LaneLimits } from './lane-limits.mjs';

/** A table whose outcomes are changed before they are written. */
const settling = (change) =>
  class extends DeliveryTable {
    settle([outcomes, ...times], text, process) {
      const changed = JSON.parse(outcomes).map(change);
      return super.settle([JSON.stringify(changed), ...times], text, process);
    }
  };

/** A table whose claims change when an event expires. @param endOf - returns the time, from the stored one and the row */
const expiring = (endOf) => {
  const change = (row) => {
    const { expiresAt, ...details } = JSON.parse(row.details ?? '{}');
    if (expiresAt === undefined) return row;
    return {
      ...row,
      details: JSON.stringify({ ...details, expiresAt: endOf(expiresAt, row) }),
    };
  };
  return class extends DeliveryTable {
    claim = (...args) => super.claim(...args).map(change);
    claimLimited = (...args) => super.claimLimited(...args).map(change);
  };
};

/** A replay server whose entries are in a changed store. */
const keeping = (change) =>
  class extends ReplayServer {
    createEntries() {
      return change(super.createEntries());
    }
  };

/** A table with changed limits. */
const limiting = (Limits) =>
  class extends DeliveryTable {
    limits = new Limits();
  };

export const PLANTED_FAULTS = {
  'an outcome of an expired claim is recorded': {
    DeliveryTable: class extends DeliveryTable {
      isHeld = ({ status }) => status === 'pending';
    },
  },
  'a claim does not see the locks of others': {
    DeliveryTable: class extends DeliveryTable {
      isClaimable = ({ status, due }) => status === 'pending' && due <= this.now;
    },
  },
  'the lease of a delivery is not extended': {
    DeliveryTable: class extends DeliveryTable {
      extend = () => [];
    },
  },
  'the claim of a crashed process never ends': {
    DeliveryTable: class extends DeliveryTable {
      isClaimable = ({ status, due, leasedUntil }) =>
        status === 'pending' && due <= this.now && leasedUntil === -Infinity;
    },
  },
  'the transaction of a vanished process stays open': {
    DeliveryTable: class extends DeliveryTable {
      claim(values, text, process, transaction) {
        transaction.rollBack = () => {};
        return super.claim(values, text, process, transaction);
      }
    },
  },
  'a limit is not shared': {
    DeliveryTable: class extends DeliveryTable {
      hasStarted([slot], process) {
        const [seq] = slot.split(':');
        return this.owners.get(seq) === process && this.isRunning(slot);
      }
    },
  },
  'the slot of a crashed process is never free': {
    DeliveryTable: class extends DeliveryTable {
      isRunning = () => true;
    },
  },
  'a start takes no token': {
    DeliveryTable: limiting(
      class extends LaneLimits {
        start(lane, level, claims, ...times) {
          return super.start(lane, { ...level, usedTokens: -claims.length }, claims, ...times);
        }
      },
    ),
  },
  'an endpoint that resumes starts another burst': {
    DeliveryTable: limiting(
      class extends LaneLimits {
        change = (known, limits, now) => ({ ...super.change(known, limits, now), fullAt: 0 });
      },
    ),
  },
  'a delivery does not wait for its turn': {
    DeliveryTable: class extends DeliveryTable {
      isClaimable(row) {
        return super.isClaimable({ ...row, held: false, holds_key: false });
      }
    },
  },
  'a delivery that ended does not release its key': {
    DeliveryTable: class extends DeliveryTable {
      releaseNext = () => [];
      releaseAll = () => [];
    },
  },
  'enqueue answers before the commit': {
    DeliveryTable: class extends DeliveryTable {
      record(values) {
        const given = JSON.parse(values[1]);
        const commit = () => super.record(values);
        this.simulation.after(5_000, undefined, commit);
        return given.map(({ id }) => ({ given_id: id, fresh: true, id: null }));
      }
    },
  },
  'a repeated event is recorded again': {
    DeliveryTable: class extends DeliveryTable {
      record([queue, deliveries, , , , , , payloads]) {
        const given = withPayloads(deliveries, payloads);
        for (const delivery of given) this.insert({ ...delivery, queue });
        return given.map(({ id }) => ({ given_id: id, fresh: true, id: null }));
      }
    },
  },
  'a failed attempt is recorded as delivered': {
    DeliveryTable: settling((row) =>
      row.failure?.startsWith('http_5') ? { ...row, status: 'delivered' } : row,
    ),
  },
  'a retry is recorded without its attempt': {
    DeliveryTable: settling((row) =>
      row.status === 'pending' && row.attempt !== undefined
        ? { ...row, attempts: row.attempts - 1 }
        : row,
    ),
  },
  'a retry is never due': {
    DeliveryTable: settling((row) =>
      row.reason === 'connection_reset' ? { ...row, due: 8.64e15 } : row,
    ),
  },
  'a timeout kills a delivery that has attempts left': {
    DeliveryTable: settling((row) =>
      row.failure === 'timeout' ? { ...row, status: 'dead' } : row,
    ),
  },
  'a retry does not check whether its event has expired': {
    DeliveryTable: expiring((end, { attempts }) => (attempts > 0 ? undefined : end)),
  },
  'an event expires early': {
    DeliveryTable: expiring((end) => end - 2_000),
  },
  'an expired delivery is recorded as delivered': {
    DeliveryTable: settling((row) =>
      row.reason === 'expired' ? { ...row, status: 'delivered' } : row,
    ),
  },
  'an expired delivery waits for its next attempt': {
    DeliveryTable: settling((row) =>
      row.reason === 'expired' ? { ...row, status: 'pending', due: 8.64e15 } : row,
    ),
  },
  'an expired delivery does not release its key': {
    DeliveryTable: settling((row) =>
      row.reason === 'expired' ? { ...row, blocks_key: true, releases: false } : row,
    ),
  },
  'a dead delivery does not block its key': {
    DeliveryTable: settling((row) =>
      row.blocks_key === true ? { ...row, blocks_key: false, releases: true } : row,
    ),
  },
  'a redelivery counts as an attempt': {
    DeliveryTable: class extends DeliveryTable {
      async redeliver(values) {
        const changed = await super.redeliver(values);
        for (const row of this.rows.values()) {
          if (changed.some(({ id }) => id === row.id)) row.attempts++;
        }
        return changed;
      }
    },
  },
  'the lease of a handler is not extended': {
    ReplayServer: class extends ReplayServer {
      extend = async () => true;
    },
  },
  'an event in progress is reserved again': {
    ReplayServer: keeping((entries) => {
      const reserve = entries.reserve.bind(entries);
      let last;
      entries.reserve = async (claim) => {
        const verdict = await reserve(claim);
        if (verdict.status === 'reserved') last = verdict;
        return verdict.status === 'in-progress' && last?.reservation.claim.key === claim.key
          ? last
          : verdict;
      };
      return entries;
    }),
  },
  'a lost lease can record': {
    ReplayServer: keeping((entries) => {
      const owners = new Map();
      for (const name of ['extend', 'commit', 'release']) {
        const change = entries[name].bind(entries);
        entries[name] = ({ claim, owner }) =>
          change({ claim, owner: owners.get(claim.key) ?? owner });
      }
      const reserve = entries.reserve.bind(entries);
      entries.reserve = async (claim) => {
        const verdict = await reserve(claim);
        if (verdict.status === 'reserved') owners.set(claim.key, verdict.reservation.owner);
        return verdict;
      };
      return entries;
    }),
  },
  'event.commit(tx) records before the transaction commits': {
    ReplayServer: class extends ReplayServer {
      commitWith = (_tx, reservation) => this.commit(reservation);
    },
  },
  'event.commit(tx) records nothing': {
    ReplayServer: class extends ReplayServer {
      commitWith = (_tx, reservation) => this.extend(reservation);
      commit = (reservation) => this.release(reservation);
    },
  },
  'a handled event is forgotten with its lease': {
    ReplayServer: keeping((entries) => {
      const reserve = entries.reserve.bind(entries);
      entries.reserve = (claim) => reserve({ ...claim, replayUntil: 0, keepUntil: 0 });
      return entries;
    }),
  },
  'an event is recorded before it is handled': {
    ReplayServer: class extends ReplayServer {
      async reserve(claim) {
        const verdict = await super.reserve(claim);
        if (verdict.status === 'reserved') await this.commit(verdict.reservation);
        return verdict;
      }
    },
  },
  'a proxy acknowledges what the receiver refused': {
    Network: class extends Network {
      async send(process, webhook) {
        const answer = await super.send(process, webhook);
        return answer >= 500 ? 204 : answer;
      }
    },
  },
  'an endpoint is read with the URL of another tenant': {
    MemoryEndpointStore: class extends MemoryEndpointStore {
      async find(id) {
        const endpoint = await super.find(id);
        return { ...endpoint, url: endpoint.url.replace('tenant=red', 'tenant=blue') };
      }
    },
  },
};
