import { Logger } from '@nestjs/common';
import { SECOND } from './clock/duration.js';
import { SystemClock, type WebhookClock } from './clock/webhook-clock.js';
import { WebhookConfigurationError } from './errors/webhook.error.js';
import { WebhookEventCatalog } from './events/event-catalog.js';
import { Problems } from './options/problems.js';
import { requireOptions } from './options/read-options.js';
import {
  CLOCK,
  duration,
  filled,
  flag,
  object,
  optional,
  rule,
  unchecked,
} from './options/rules.js';
import {
  type ResolvedPublisherOptions,
  resolvePublisherOptions,
} from './publisher/publisher-options.resolver.js';
import { INBOX, type ResolvedInbox, resolveInbox } from './receiver/inbox/inbox-options.js';
import { type ResolvedReceivers, resolveReceivers } from './receiver/receiver-options.resolver.js';
import type { WebhookModuleOptions } from './webhook-module-options.interface.js';

const MODULE = object<WebhookModuleOptions>()(
  {
    receiver: unchecked<WebhookModuleOptions['receiver']>(),
    publisher: unchecked<WebhookModuleOptions['publisher']>(),
    events: optional(
      rule<WebhookEventCatalog>(
        (value) => value instanceof WebhookEventCatalog,
        'must be the result of defineEvents',
      ),
    ),
    inbox: filled(INBOX),
    checkStores: optional(flag, true),
    shutdownTimeout: optional(duration({ isTimeout: true }), 10 * SECOND),
    clock: optional(CLOCK),
  },
  {
    across({ receiver, publisher }, at) {
      const isEmpty = receiver === undefined && publisher === undefined;
      if (isEmpty && at.all.length === 0) {
        at.add(
          'WebhookModule',
          'nothing is configured; set "receiver" to receive webhooks, "publisher" to send them, or both',
        );
      }
    },
  },
);

export interface ResolvedWebhookOptions {
  readonly receivers: ResolvedReceivers;
  /** Absent if nothing is published. */
  readonly publisher: ResolvedPublisherOptions | undefined;
  /** Absent if the application has defined none. */
  readonly events: WebhookEventCatalog | undefined;
  /** Absent if nothing is recorded. */
  readonly inbox: ResolvedInbox | undefined;
  readonly checkStores: boolean;
  readonly clock: WebhookClock;
  /** Milliseconds. */
  readonly shutdownTimeout: number;
}

/**
 * Checks and fills the options once.
 *
 * @throws {@link WebhookConfigurationError} with every problem of every part
 */
export function resolveWebhookOptions(options: WebhookModuleOptions): ResolvedWebhookOptions {
  requireOptions(options, 'WebhookModule');
  const problems = new Problems();
  const { clock = new SystemClock(), ...read } = MODULE(options, problems, '');
  const { events, inbox, checkStores, shutdownTimeout } = read;
  const receivers = resolveReceivers(read.receiver, { clock, events }, problems);
  const publisher =
    read.publisher === undefined
      ? undefined
      : resolvePublisherOptions(
          read.publisher,
          { clock, events, production: process.env['NODE_ENV'] === 'production' },
          problems,
        ).resolved;
  checkQueues(receivers, publisher, problems);
  problems.throwIfAny();
  for (const { path, message } of problems.warnings) {
    new Logger('WebhookModule').warn(`${path} ${message}`);
  }
  const recorded = resolveInbox(inbox, clock);
  return { receivers, publisher, events, inbox: recorded, checkStores, clock, shutdownTimeout };
}

/** As {@link resolveWebhookOptions}; also checks the examples of events, with validators that may be asynchronous. */
export async function resolveAndCheckExamples(
  options: WebhookModuleOptions,
): Promise<ResolvedWebhookOptions> {
  const resolved = resolveWebhookOptions(options);
  const problems = (await resolved.events?.exampleProblems()) ?? [];
  if (problems.length > 0) throw new WebhookConfigurationError(problems);
  return resolved;
}

/** A queue has one consumer: two would take each other's deliveries. */
function checkQueues(
  receivers: ResolvedReceivers,
  publisher: ResolvedPublisherOptions | undefined,
  problems: Problems,
): void {
  const owners = new Map<unknown, string>();
  if (publisher !== undefined) owners.set(publisher.queue, 'the publisher');
  for (const { name, queued } of receivers.values()) {
    if (queued === undefined) continue;
    const owner = owners.get(queued.queue);
    problems.require(
      owner === undefined,
      `receiver "${name}".queue`,
      `is also the queue of ${owner}; create another one, for example on the same database under another name`,
    );
    owners.set(queued.queue, `receiver "${name}"`);
  }
}
