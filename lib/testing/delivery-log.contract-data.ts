import type {
  DeliveryChange,
  DeliveryCounts,
  DeliveryFilter,
  DeliveryLog,
  LoggedAttempt,
  LoggedDelivery,
} from '../deliveries/delivery-log.js';
import type { EnqueuedDelivery } from '../queue/webhook-queue.js';
import type { DeliveryPayload, OutgoingDelivery } from '../queue/webhook-delivery.interface.js';

export const NOW = 1_767_225_600_000;

/** Payloads that a text column, a driver or an encoding may corrupt. */
export const PAYLOADS: Readonly<Record<string, DeliveryPayload>> = {
  everyOctet: bytes(Uint8Array.from({ length: 256 }, (_, octet) => octet)),
  noOctets: bytes(new Uint8Array(0)),
  noData: { kind: 'json', bytes: undefined, contentType: 'application/json' },
  nul: bytes(octetsOf('{"é":"\\u0000"}\0')),
  unicode: bytes(octetsOf('"🧾 \\\\x41 $1 ?"')),
  // A view of a part of a larger buffer.
  part: bytes(octetsOf('before|within|behind').subarray(7, 13)),
};

function octetsOf(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

function bytes(octets: Uint8Array): DeliveryPayload {
  return { kind: 'bytes', bytes: octets, contentType: 'application/octet-stream' };
}

/** A delivery, due at {@link NOW} by default. */
export function enqueued(
  id: string,
  change: Partial<OutgoingDelivery> = {},
  notBefore = NOW,
): EnqueuedDelivery<OutgoingDelivery> {
  const payload = { kind: 'json', bytes: octetsOf('{}'), contentType: 'application/json' } as const;
  const delivery = {
    id,
    eventId: `event-${id}`,
    event: 'contract.checked',
    endpointId: 'crm',
    payload,
    createdAt: NOW,
    ...change,
  };
  return { delivery, notBefore };
}

export function changed(
  { delivery }: EnqueuedDelivery<OutgoingDelivery>,
  change: Partial<DeliveryChange> & Pick<DeliveryChange, 'attempts'>,
): DeliveryChange {
  return { delivery, status: 'pending', at: NOW + 1_000, ...change };
}

export function attemptMade(attempt: number, change: Partial<LoggedAttempt> = {}): LoggedAttempt {
  return { attempt, at: NOW + attempt, method: 'POST', durationMs: 12, ...change };
}

/** Reads a log in a comparable form. */
export class LogReading {
  constructor(private readonly log: DeliveryLog) {}

  async find(id: string): Promise<LoggedDelivery | undefined> {
    const found = await this.log.find(id);
    return found && { ...found, delivery: comparable(found.delivery) };
  }

  async ids(filter: DeliveryFilter): Promise<string[]> {
    const found = await this.log.list(filter, { limit: 1_000 });
    return found.map(({ delivery }) => delivery.id);
  }

  async idsInPages(filter: DeliveryFilter, limit: number): Promise<string[]> {
    const ids: string[] = [];
    let after: { createdAt: number; id: string } | undefined;
    for (;;) {
      const page = await this.log.list(filter, { limit, after });
      ids.push(...page.map(({ delivery }) => delivery.id));
      if (page.length < limit) return ids;
      after = page.at(-1)!.delivery;
    }
  }

  async counts(filter: DeliveryFilter): Promise<DeliveryCounts[]> {
    const counts = await this.log.counts(filter);
    return counts.toSorted((a, b) => (placeOf(a) < placeOf(b) ? -1 : 1));
  }
}

/** A log may return any kind of Uint8Array. */
function comparable(delivery: OutgoingDelivery): OutgoingDelivery {
  const { payload } = delivery;
  const bytes = payload.bytes === undefined ? undefined : Uint8Array.from(payload.bytes);
  return { ...delivery, payload: { ...payload, bytes } };
}

function placeOf({ endpointId = '', tenant = '' }: DeliveryCounts): string {
  return `${endpointId} ${tenant}`;
}
