import type { Queue } from 'bullmq';

/** Warns if the server of a queue is configured so that it can lose deliveries. */
export async function warnIfNotDurable(queue: Queue): Promise<void> {
  // A managed server may not allow INFO.
  const faults = await durabilityFaults(queue).catch(() => []);
  for (const fault of faults) {
    process.emitWarning(`Redis can lose webhook deliveries: ${fault}`, {
      code: 'WEBHOOK_QUEUE_MAY_LOSE',
    });
  }
}

/** Lists the settings of the server with which it can lose deliveries. */
export async function durabilityFaults(queue: Queue): Promise<string[]> {
  const client = await queue.getBackend().client;
  const info = await client.info();
  const faults: string[] = [];
  if (/^aof_enabled:0/m.test(info)) {
    faults.push(
      'its append-only file is off, so a restart loses pending deliveries; set "appendonly yes"',
    );
  }
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1] ?? 'noeviction';
  if (policy !== 'noeviction') {
    faults.push(
      `its maxmemory-policy is ${policy}, so a full server deletes deliveries; set "maxmemory-policy noeviction"`,
    );
  }
  return faults;
}
