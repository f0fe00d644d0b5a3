import {
  Catch,
  type CallHandler,
  type ExceptionFilter,
  type ExecutionContext,
  Injectable,
  type NestInterceptor,
} from '@nestjs/common';
import {
  ApplicationConfig,
  ContextIdFactory,
  ExternalContextCreator,
  ModuleRef,
  ModulesContainer,
  NestContainer,
  type ContextId,
} from '@nestjs/core';
import type { Observable } from 'rxjs';
import { nearestWord } from '../../options/option-names.js';
import { matchesEvent } from '../../token/event-name.js';
import { markGuardRefusal } from '../error-answers.js';
import { observeHandler } from '../receiver.channels.js';
import { WEBHOOK_CONTEXT_TYPE } from '../receiver.constants.js';
import { internalsOf, type WebhookEvent } from '../webhook-event.js';

/** A handler method with its pipes, guards, interceptors and filters. */
export interface WebhookHandler {
  /** `Class.method`, for messages. */
  readonly name: string;
  /**
   * @param scope - shared by all handlers of an event, so that request-scoped providers are created once
   */
  run(event: WebhookEvent, scope: () => ContextId): Promise<unknown>;
}

/** A pattern of a handler. */
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

  /** @param receiver - the receiver whose events the handler gets; default: every receiver */
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

/** Runs all handlers of an event and waits until every one has settled. */
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
   * @returns how many handlers ran
   * @throws the handler's error, or an AggregateError if several failed
   */
  async dispatch(event: WebhookEvent): Promise<number> {
    return this.run(this.handlersOf(event), event);
  }

  /**
   * As {@link dispatch}, with handlers of {@link handlersOf}.
   *
   * @hidden
   */
  async run(handlers: readonly WebhookHandler[], event: WebhookEvent): Promise<number> {
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

/** A call of a handler, the second argument of its execution context. */
interface HandlerCall {
  /** Whether its guards have let the event pass. */
  isAllowed: boolean;
}

/** Metadata of a class, by method: the parameters that handlers take, in the form that Nest's ExternalContextCreator reads. */
export const HANDLER_PARAMETERS = 'nestjs-webhook-token:parameters';

/** A parameter of a handler; `@WebhookData()` and `@WebhookContext()` record it. */
export interface HandlerParameter {
  readonly takes: 'data' | 'event';
  /** Whether a Standard Schema validates it. */
  readonly hasSchema?: boolean;
  /** The event itself, or its data, validated. */
  valueFrom(event: WebhookEvent): unknown;
}

/** Takes the arguments of a handler from its event; Nest then applies the pipes. */
const parameters = {
  exchangeKeyForValue(_type: number, { valueFrom }: HandlerParameter, [event]: [WebhookEvent]) {
    return valueFrom(event);
  },
};

/** Runs first of a handler's interceptors, and so after its guards. */
class AllowedInterceptor implements NestInterceptor {
  intercept(context: ExecutionContext, next: CallHandler): Observable<unknown> {
    context.getArgByIndex<HandlerCall>(1).isAllowed = true;
    return next.handle();
  }
}

/** Runs last of a handler's filters: Nest would log the error, which the receiver reports. */
@Catch()
class RethrowingFilter implements ExceptionFilter {
  catch(error: unknown): never {
    throw error;
  }
}

/**
 * Applies a handler's own pipes, guards, interceptors and filters.
 *
 * The application's global ones are left out, since they are for HTTP requests: a global guard would refuse the event, and a global
 * filter could turn a failure into a success. So the creator gets the application's modules with a configuration of its own.
 */
@Injectable()
export class WebhookHandlerContext {
  private readonly creator: ExternalContextCreator;

  constructor(modules: ModulesContainer) {
    const config = new ApplicationConfig();
    config.useGlobalInterceptors(new AllowedInterceptor());
    config.useGlobalFilters(new RethrowingFilter());
    const container = new NestContainer(config);
    for (const [key, module] of modules) container.getModules().set(key, module);
    this.creator = ExternalContextCreator.fromContainer(container);
  }

  /**
   * @param scope - context id and inquirer of a request-scoped instance; absent for a singleton
   */
  wrap(
    instance: object,
    methodName: string,
    scope?: { readonly contextId: ContextId; readonly inquirerId: string },
  ): (event: WebhookEvent) => Promise<unknown> {
    const run = this.creator.create(
      instance,
      (instance as Record<string, (...args: unknown[]) => unknown>)[methodName]!,
      methodName,
      HANDLER_PARAMETERS,
      parameters,
      scope?.contextId,
      scope?.inquirerId,
      { guards: true, interceptors: true, filters: true },
      WEBHOOK_CONTEXT_TYPE,
    );
    return async (event) => {
      const call: HandlerCall = { isAllowed: false };
      try {
        return (await run(event, call)) as unknown;
      } catch (error) {
        // A guard that refuses is logged and answered as one, and not as a failed handler.
        if (!call.isAllowed) markGuardRefusal(error);
        throw error;
      }
    };
  }
}
