import type { Queue } from 'bullmq';

/** Says what of the server's set-up would lose deliveries; none where it does not tell. */
export async function durabilityFaults(queue: Queue): Promise<string[]> {
  const client = await queue.getBackend().client;
  const info = await client.info();
  const faults: string[] = [];
  if (/^aof_enabled:0/m.test(info)) {
    faults.push(
      'its append-only file is off, so that a restart of Redis loses what waits: set appendonly yes',
    );
  }
  const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1] ?? 'noeviction';
  if (policy !== 'noeviction') {
    faults.push(
      `its maxmemory-policy is ${policy}, so that a full server forgets deliveries: set noeviction`,
    );
  }
  return faults;
}
