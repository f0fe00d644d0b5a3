import type { EnqueuedDelivery } from '../../lib/queue/webhook-queue.js';

/** A delivery that is due. */
export function due(id: string, endpointId = 'crm'): EnqueuedDelivery {
  return {
    delivery: {
      id,
      eventId: `event-${id}`,
      event: 'order.created',
      endpointId,
      payload: {
        kind: 'json',
        bytes: Buffer.from('{"what?":"it\'s $1 \\\\ :name"}'),
        contentType: 'application/json',
      },
      createdAt: Date.now(),
    },
    notBefore: Date.now(),
  };
}

/** A destination whose URL has all that a binding could stumble over. */
export function dueAtUrl(id: string): EnqueuedDelivery {
  const { delivery, notBefore } = due(id);
  const { endpointId: _, ...rest } = delivery;
  const url = 'https://crm.example/hooks?a=\'$1\'&b=:name&c="\\"';
  return { delivery: { ...rest, url }, notBefore };
}

/** A delivery with so many octets, each of them told by its place. */
export function large(id: string, size: number): EnqueuedDelivery {
  const { delivery, notBefore } = due(id);
  const bytes = Buffer.alloc(size);
  for (let at = 0; at < size; at++) bytes[at] = (at * 31 + (at >> 8)) & 0xff;
  const payload = { kind: 'bytes', bytes, contentType: 'application/octet-stream' } as const;
  return { delivery: { ...delivery, payload }, notBefore };
}
