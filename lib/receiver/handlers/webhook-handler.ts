import type { ContextId } from '@nestjs/core';
import type { WebhookEvent } from '../webhook-event.js';

/** A handler method, ready to run: with its pipes, guards, interceptors and filters around it. */
export interface WebhookHandler {
  /** `Class.method`, for messages. */
  readonly name: string;
  /**
   * @param scope - shared by all handlers of one event, so that request-scoped providers are built once
   */
  run(event: WebhookEvent, scope: () => ContextId): unknown;
}
