import { randomBytes } from 'node:crypto';
import type { Stage } from './act.js';
import { DELIVERIES } from './deliveries.js';
import { DemoProcess } from './demo-process.js';
import { REFUSALS } from './refusals.js';
import { RETRY } from './retry.js';
import type { PublisherSkills, ReceiverSkills } from './skills.js';
import { printAct, printLines } from './story.js';

const ACTS = [...DELIVERIES, ...REFUSALS, RETRY];

/** Settings that the two processes share. The secret is new in every run. */
const SHARED = {
  DEMO_ISSUER: 'https://shop.example',
  DEMO_SECRET: randomBytes(32).toString('hex'),
};

/** @returns the number of acts with the expected outcome */
async function playAll(stage: Stage): Promise<number> {
  let good = 0;
  for (const [index, act] of ACTS.entries()) {
    const scene = await act.play(stage).catch((error: Error) => {
      throw new Error(`${act.title} ${error.message}`, { cause: error });
    });
    printAct(index + 1, act, scene);
    if (scene.failures.length === 0) good++;
  }
  return good;
}

async function run(): Promise<number> {
  const processes: { stop(): Promise<void> }[] = [];
  try {
    const receiver = await DemoProcess.start<ReceiverSkills>('receiver', SHARED);
    processes.push(receiver.process);
    const publisher = await DemoProcess.start<PublisherSkills>('publisher', {
      ...SHARED,
      DEMO_RECEIVER_URL: receiver.address,
    });
    processes.push(publisher.process);
    printLines('Two processes on this machine share a secret.', [
      ['publisher', `process ${publisher.process.pid}, signs as ${publisher.address}`],
      ['receiver', `process ${receiver.process.pid}, listens on ${receiver.address}`],
    ]);
    return await playAll({
      publisher: publisher.process,
      receiver: receiver.process,
      url: receiver.address,
      issuer: publisher.address,
    });
  } finally {
    await Promise.all(processes.map((process) => process.stop()));
  }
}

try {
  const good = await run();
  console.log(`${good} of ${ACTS.length} had the expected outcome.`);
  process.exitCode = good === ACTS.length ? 0 : 1;
} catch (error) {
  console.error(`The demo stopped: ${(error as Error).message}`);
  process.exitCode = 1;
}
