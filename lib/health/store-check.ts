import type { OnApplicationBootstrap } from '@nestjs/common';
import {
  type ConfigurationProblem,
  errorName,
  isWebhookError,
  WebhookConfigurationError,
} from '../errors/webhook.error.js';
import type { CheckedStore } from './webhook-parts.js';

/** A client that was just created may still be connecting: start-up tries for five seconds. */
const ATTEMPTS = 50;
const PAUSE = 100;

/**
 * Checks at start-up that every configured store can be used, so that a missing migration or a wrong address is found by the
 * deployment, not by the first event.
 *
 * It runs after every `onModuleInit`, in which an application may migrate its database, and before the server listens.
 */
export class WebhookStoreCheck implements OnApplicationBootstrap {
  /** @param pause - waits in real time, since a test clock stands still during start-up */
  constructor(
    private readonly stores: readonly CheckedStore[],
    private readonly pause: (ms: number) => Promise<void> = pauseFor,
  ) {}

  async onApplicationBootstrap(): Promise<void> {
    const failures = await Promise.all(this.stores.map(async (store) => this.check(store)));
    const failed = failures.filter((failure) => failure !== undefined);
    if (failed.length === 0) return;
    throw new WebhookConfigurationError(
      failed.map(({ problem }) => problem),
      { cause: failed[0]!.cause },
    );
  }

  private async check({
    path,
    store,
  }: CheckedStore): Promise<{ problem: ConfigurationProblem; cause: unknown } | undefined> {
    for (let attempt = 1; ; attempt++) {
      try {
        await store.check?.();
        return undefined;
      } catch (cause) {
        const mayRecover = !isWebhookError(cause) || cause.code === 'store_unavailable';
        if (mayRecover && attempt < ATTEMPTS) {
          await this.pause(PAUSE);
          continue;
        }
        return { problem: { path, message: describe(cause) }, cause };
      }
    }
  }
}

/** The message of a foreign error may quote a connection string. */
function describe(error: unknown): string {
  if (!isWebhookError(error)) {
    return `cannot be used (${errorName(error)}): see the cause of this error; to start without the store, set checkStores: false`;
  }
  const what = error.message.replace(/\.$/, '');
  return error.code === 'store_unavailable'
    ? `${what}; start it or correct its address, or set checkStores: false to start without it`
    : what;
}

// Unlike SystemClock's, this timer keeps the process alive: during start-up there may be nothing else that does.
async function pauseFor(ms: number): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve, ms));
}
