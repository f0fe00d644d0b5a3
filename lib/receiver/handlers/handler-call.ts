import {
  type CallHandler,
  Catch,
  type ExceptionFilter,
  type ExecutionContext,
  Injectable,
  type NestInterceptor,
} from '@nestjs/common';
import {
  ApplicationConfig,
  type ContextId,
  ExternalContextCreator,
  ModulesContainer,
  NestContainer,
} from '@nestjs/core';
import type { Observable } from 'rxjs';
import { markGuardRefusal } from '../error-answers.js';
import { HANDLER_PARAMETERS, WEBHOOK_CONTEXT_TYPE } from '../receiver.constants.js';
import type { WebhookEvent } from '../webhook-event.js';
import type { HandlerParameter } from './handler-metadata.js';

/** A call of a handler, the second argument of its execution context. */
interface HandlerCall {
  /** Whether its guards have let the event pass. */
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
