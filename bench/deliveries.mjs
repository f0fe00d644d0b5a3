/** A delivery that is due, for the queues of the scenarios. */
export function dueDelivery(id, endpointId = 'crm') {
  const now = Date.now();
  const payload = { kind: 'json', bytes: Buffer.from('{}'), contentType: 'application/json' };
  const delivery = { id, eventId: id, event: 'order.created', endpointId, payload };
  return { delivery: { ...delivery, createdAt: now }, notBefore: now };
}

/** Records deliveries for a number of endpoints in turn, a thousand a call. */
export async function fill(queue, count, endpoints) {
  for (let from = 0; from < count; from += 1_000) {
    const numbers = Array.from({ length: Math.min(1_000, count - from) }, (_, at) => from + at);
    await queue.enqueue(
      numbers.map((number) => dueDelivery(`delivery-${number}`, `endpoint-${number % endpoints}`)),
    );
  }
}

export function median(values) {
  return values.toSorted((a, b) => a - b)[values.length >> 1];
}
