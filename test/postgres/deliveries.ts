import type {
  EnqueuedDelivery,
  OutgoingDelivery,
  ReceivedDelivery,
} from 'nestjs-webhook-token/ports';

/** A delivery that is due. */
export function due(id: string, endpointId = 'crm'): EnqueuedDelivery<OutgoingDelivery> {
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

/** A received event that is due. */
export function dueReceived(id: string): EnqueuedDelivery<ReceivedDelivery> {
  const { delivery, notBefore } = due(id);
  const { endpointId: _, ...event } = delivery;
  const received = {
    receiver: 'shop',
    claims: { iss: 'https://a.example', jti: id, iat: 1, exp: 2, webhook: { event: 'a' } },
    method: 'POST',
    profile: 'webhook-token',
    bodyVerified: true,
  } as const;
  return { delivery: { ...event, received }, notBefore };
}

/** A destination whose URL contains every character that a parameter binding could corrupt. */
export function dueAtUrl(id: string): EnqueuedDelivery<OutgoingDelivery> {
  const { delivery, notBefore } = due(id);
  const { endpointId: _, ...rest } = delivery;
  const url = 'https://crm.example/hooks?a=\'$1\'&b=:name&c="\\"';
  return { delivery: { ...rest, url }, notBefore };
}

/** A delivery with a payload of this size; each byte depends on its position. */
export function large(id: string, size: number): EnqueuedDelivery<OutgoingDelivery> {
  const { delivery, notBefore } = due(id);
  const bytes = Buffer.alloc(size);
  for (let at = 0; at < size; at++) bytes[at] = (at * 31 + (at >> 8)) & 0xff;
  const payload = { kind: 'bytes', bytes, contentType: 'application/octet-stream' } as const;
  return { delivery: { ...delivery, payload }, notBefore };
}
