import {
  type CallHandler,
  Catch,
  type ExceptionFilter,
  type ExecutionContext,
  type NestInterceptor,
  type Type,
} from '@nestjs/common';
import {
  ApplicationConfig,
  type ContextId,
  ExternalContextCreator,
  ModuleRef,
  NestContainer,
} from '@nestjs/core';
import { defaultIfEmpty, type Observable } from 'rxjs';
import { type HostedMethod, isScoped, type MethodHost } from '../../options/decorated-methods.js';
import { markGuardRefusal } from '../error-answers.js';
import { WEBHOOK_CONTEXT_TYPE } from '../receiver.constants.js';
import type { WebhookEvent } from '../webhook-event.js';
import { HANDLER_PARAMETERS, type HandlerParameter } from './handler-metadata.js';
import type { WebhookHandler } from './webhook.dispatcher.js';

/** A call of a handler, the second argument of its execution context. */
interface HandlerCall {
  isAllowed: boolean;
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
    // Nest takes the last value, and rejects without one.
    return next.handle().pipe(defaultIfEmpty(undefined));
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
 * Applies the pipes, guards, interceptors and filters of one handler.
 *
 * The application's global ones are left out, since they are for HTTP requests: a global guard would refuse the event, and a global
 * filter could turn a failure into a success. So the creator gets a container with a configuration of its own, and with the module of
 * the handler only. It remembers what it knows of a handler by the names of its class and method, so each handler has its own.
 */
class WebhookHandlerContext {
  /** Names of the handler's guards, interceptors, filters and pipes that Nest has not created. It skips them without an error. */
  readonly skipped = new Set<string>();
  private readonly creator: ExternalContextCreator;

  constructor({ host }: MethodHost) {
    const config = new ApplicationConfig();
    config.useGlobalInterceptors(new AllowedInterceptor());
    config.useGlobalFilters(new RethrowingFilter());
    const container = new NestContainer(config);
    // Nest looks for the module that provides the handler's class. A controller is no provider, and its guards would not be found.
    const find = (type: Type): MethodHost | undefined => {
      const enhancer = host!.injectables.get(type);
      if (enhancer === undefined) this.skipped.add(type.name);
      return enhancer;
    };
    const module = Object.create(host!, {
      hasProvider: { value: () => true },
      injectables: { value: { get: find } },
    }) as typeof host;
    container.getModules().set(host!.token, module!);
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
    const call = this.creator.create(
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
      const state: HandlerCall = { isAllowed: false };
      try {
        return (await call(event, state)) as unknown;
      } catch (error) {
        // A guard that refuses is logged and answered as one, and not as a failed handler.
        if (!state.isAllowed) markGuardRefusal(error);
        throw error;
      }
    };
  }
}

/**
 * The function that calls a method, on an instance of the event's scope if its provider is scoped.
 *
 * @returns also the names of the method's guards, interceptors, filters and pipes that would not run: Nest creates those of classes
 *   only
 */
export function callOf({ host, prototype, key }: HostedMethod): {
  readonly call: WebhookHandler['call'];
  readonly skipped: ReadonlySet<string>;
} {
  const context = new WebhookHandlerContext(host);
  const { skipped } = context;
  if (!isScoped(host)) return { call: context.wrap(host.instance as object, key), skipped };
  // Finds what Nest would skip; the instances do not exist yet.
  if (host.isNotMetatype) context.wrap(prototype, key);
  // Of its own module: another one may provide the same class.
  const { instance: moduleRef } = host.host!.getProviderByKey(ModuleRef);
  const call: WebhookHandler['call'] = async (event, scope) => {
    const contextId = scope(host.isDependencyTreeDurable());
    const instance = await moduleRef.resolve<object>(host.token, contextId, { strict: true });
    return context.wrap(instance, key, { contextId, inquirerId: host.id })(event);
  };
  return { call, skipped };
}
