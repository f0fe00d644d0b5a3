import { Injectable } from '@nestjs/common';
import { ContextIdFactory, ModuleRef, type ContextId } from '@nestjs/core';
import { nearestWord } from '../../options/option-names.js';
import { matchesEvent } from '../../token/event-name.js';
import { HandlerErrors } from '../error-answers.js';
import { observeHandler } from '../receiver.channels.js';
import { internalsOf, WebhookEvent } from '../webhook-event.js';

/** A handler method with its pipes, guards, interceptors and filters. */
export interface WebhookHandler {
  /** `Class.method`, for messages. */
  readonly name: string;
  /** @param scope - of all handlers of an event, so that request-scoped providers are created once */
  call(event: WebhookEvent, scope: HandlerScope): Promise<unknown>;
}

/** @param isDurable - whether the scoped providers of the handler are all durable */
type HandlerScope = (isDurable: boolean) => ContextId;

interface Subscription {
  readonly pattern: string;
  /** The receiver whose events the handler gets; `undefined` for every receiver. */
  readonly receiver: string | undefined;
  readonly handler: WebhookHandler;
}

/** Events whose handlers are remembered; a trusted sender that makes names up must not fill the memory. */
const REMEMBERED_EVENTS = 4_096;

/** The handlers by event pattern: filled by the explorer at start-up, queried by the dispatcher. */
@Injectable()
export class WebhookHandlerRegistry {
  private readonly subscriptions: Subscription[] = [];
  private readonly found = new Map<string, readonly WebhookHandler[]>();

  add(pattern: string, receiver: string | undefined, handler: WebhookHandler): void {
    this.subscriptions.push({ pattern, receiver, handler });
    this.found.clear();
  }

  /** The handlers of an event, each once, in the order of registration. */
  find(receiver: string, event: string): readonly WebhookHandler[] {
    // An event name has no white space.
    const key = `${event} ${receiver}`;
    let handlers = this.found.get(key);
    if (handlers === undefined) {
      const matching = this.of(receiver).filter(({ pattern }) => matchesEvent(pattern, event));
      handlers = [...new Set(matching.map(({ handler }) => handler))];
      if (this.found.size >= REMEMBERED_EVENTS) this.found.clear();
      this.found.set(key, handlers);
    }
    return handlers;
  }

  /** The pattern of a handler that is spelt most like an event's name, if one is close enough. */
  nearestPattern(receiver: string, event: string): string | undefined {
    return nearestWord(
      event,
      this.of(receiver).map(({ pattern }) => pattern),
    );
  }

  private of(receiver: string): Subscription[] {
    return this.subscriptions.filter(
      (one) => one.receiver === undefined || one.receiver === receiver,
    );
  }
}

/** Calls all handlers of an event and waits until every one has settled. */
@Injectable()
export class WebhookDispatcher {
  constructor(
    private readonly registry: WebhookHandlerRegistry,
    private readonly moduleRef: ModuleRef,
  ) {}

  /**
   * The handlers of an event.
   *
   * @hidden
   */
  handlersOf({ receiver, event }: WebhookEvent): readonly WebhookHandler[] {
    return this.registry.find(receiver, event);
  }

  /**
   * @returns how many handlers it called
   * @throws the handler's error, or an AggregateError if several failed; TypeError for a value that is no {@link WebhookEvent}
   */
  async dispatch(event: WebhookEvent): Promise<number> {
    if (!(event instanceof WebhookEvent)) {
      throw new TypeError(
        'WebhookDispatcher.dispatch(): this is no WebhookEvent; pass the event of @WebhookContext() or of WebhookVerifier',
      );
    }
    return await this.call(this.handlersOf(event), event);
  }

  /**
   * As {@link dispatch}, with handlers of {@link handlersOf}.
   *
   * @hidden
   */
  async call(handlers: readonly WebhookHandler[], event: WebhookEvent): Promise<number> {
    const scope = this.scopeOf(event);
    internalsOf(event).handlers = handlers.length;
    const results = await Promise.allSettled(
      handlers.map(({ name, call }) => observeHandler(name, event, () => call(event, scope))),
    );
    const failures = results.filter((result) => result.status === 'rejected');
    if (failures.length === 1) throw failures[0]!.reason;
    if (failures.length > 1) {
      throw new HandlerErrors(
        failures.map(({ reason }) => reason as unknown),
        `${failures.length} of ${handlers.length} handlers failed`,
      );
    }
    return handlers.length;
  }

  /** One scope per event, created by its first request-scoped handler, and one by its first durable one. */
  private scopeOf(event: WebhookEvent): HandlerScope {
    const scopes = new Map<boolean, ContextId>();
    return (isDurable) => {
      let scope = scopes.get(isDurable);
      if (scope === undefined) {
        scope = ContextIdFactory.getByRequest(event);
        scopes.set(isDurable, scope);
        // A durable provider outlives the event. As on routes, it gets what the application's ContextIdStrategy chose for it.
        const request: unknown = isDurable ? (scope.payload ?? event) : event;
        this.moduleRef.registerRequestByContextId(request, scope);
      }
      return scope;
    };
  }
}
