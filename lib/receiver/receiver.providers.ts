import type { Provider } from '@nestjs/common';
import { ReceiverDrain } from './receiver.drain.js';
import { ReceiverReporter } from './receiver.reporter.js';
import { ReceiverLifecycle } from './receiver.lifecycle.js';
import { WebhookDispatcher, WebhookHandlerRegistry } from './handlers/webhook.dispatcher.js';
import { WebhookExplorer } from './handlers/webhook.explorer.js';
import { WebhookGuard } from './webhook.guard.js';
import { ReceivePipeline } from './receive.js';
import { WebhookMount } from './mount/webhook.mount.js';
import { EventPoller } from './event.poller.js';
import { ReceivedEventWorker } from './queued/received-event.worker.js';
import { InboxRecorder } from './inbox/inbox.recorder.js';
import { WebhookInbox } from './inbox/webhook.inbox.js';
import { WebhookVerifier } from './webhook.verifier.js';

/** The receiving side; the module provides WEBHOOK_RECEIVERS, RECEIVER_SHUTDOWN and WEBHOOK_INBOX. */
export const RECEIVER_PROVIDERS: readonly Provider[] = [
  WebhookVerifier,
  WebhookDispatcher,
  ReceivePipeline,
  ReceiverReporter,
  WebhookGuard,
  WebhookHandlerRegistry,
  WebhookExplorer,
  WebhookMount,
  ReceiverDrain,
  ReceiverLifecycle,
  ReceivedEventWorker,
  EventPoller,
  InboxRecorder,
  WebhookInbox,
];

/** What applications inject, and what the guard needs on routes of other modules. */
export const RECEIVER_EXPORTS = [
  WebhookVerifier,
  WebhookDispatcher,
  ReceivePipeline,
  WebhookGuard,
  ReceiverReporter,
  ReceiverDrain,
  WebhookInbox,
] as const;
