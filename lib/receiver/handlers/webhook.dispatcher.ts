import { Injectable } from '@nestjs/common';
import { ContextIdFactory, ModuleRef, type ContextId } from '@nestjs/core';
import { WebhookHandlerRegistry } from './webhook-handler.registry.js';
import { observeHandler } from '../receiver.channels.js';
import { internalsOf, type WebhookEvent } from '../webhook-event.js';

/** Runs all handlers of an event and waits until every one has settled. */
@Injectable()
export class WebhookDispatcher {
  constructor(
    private readonly registry: WebhookHandlerRegistry,
    private readonly moduleRef: ModuleRef,
  ) {}

  /**
   * Whether the event has a handler.
   *
   * @hidden
   */
  handles({ receiver, event }: WebhookEvent): boolean {
    return this.registry.find(receiver, event).length > 0;
  }

  /**
   * @returns how many handlers ran
   * @throws the handler's error, or an AggregateError if several failed
   */
  async dispatch(event: WebhookEvent): Promise<number> {
    const handlers = this.registry.find(event.receiver, event.event);
    const scope = this.scopeOf(event);
    internalsOf(event).handlers = handlers.length;
    const results = await Promise.allSettled(
      handlers.map(async ({ name, run }) =>
        observeHandler(name, event, async () => run(event, scope)),
      ),
    );
    const failures = results.filter((result) => result.status === 'rejected');
    if (failures.length === 1) throw failures[0]!.reason;
    if (failures.length > 1) {
      throw new AggregateError(
        failures.map(({ reason }) => reason as unknown),
        `${failures.length} of ${handlers.length} handlers failed`,
      );
    }
    return handlers.length;
  }

  /** One scope per event, created by its first request-scoped handler. */
  private scopeOf(event: WebhookEvent): () => ContextId {
    let scope: ContextId | undefined;
    return () => {
      if (scope === undefined) {
        scope = ContextIdFactory.create();
        this.moduleRef.registerRequestByContextId(event, scope);
      }
      return scope;
    };
  }
}
