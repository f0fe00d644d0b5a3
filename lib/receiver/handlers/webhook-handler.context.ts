import { Injectable } from '@nestjs/common';
import { ExternalContextCreator, type ContextId } from '@nestjs/core';
import { markGuardRefusal } from '../answers/webhook-answer.js';
import { WEBHOOK_CONTEXT_TYPE } from '../receiver.constants.js';
import type { WebhookEvent } from '../webhook-event.js';

/** Where Nest keeps the parameter decorators of a method, on its class. */
const ROUTE_ARGUMENTS = '__routeArguments__';
/** Where Nest keeps the filters bound to a class or a method. */
const FILTERS = '__exceptionFilters__';

/** Nest's numbers for the parameters of `@Req()` and `@Body()`, which may stand on a handler too. */
const REQUEST_PARAMETER = 0;
const BODY_PARAMETER = 3;

type Method = (...args: unknown[]) => unknown;

/** The container as `fromContainer` reads it. */
type Container = Parameters<typeof ExternalContextCreator.fromContainer>[0];

const parameters = {
  exchangeKeyForValue(type: number, key: unknown, [event]: [WebhookEvent]): unknown {
    if (type === REQUEST_PARAMETER) return event;
    if (type !== BODY_PARAMETER) return null;
    return typeof key === 'string' && key !== ''
      ? (event.data as Record<string, unknown> | undefined)?.[key]
      : event.data;
  },
};

/**
 * Puts a handler's own pipes, guards, interceptors and filters around it.
 *
 * The application's global ones stay out: they guard and format HTTP requests, this is none any more.
 * A global guard would refuse it, and a global filter could turn a failure into an answer, which the
 * sender would take for a success. Nest offers no switch for that, so the creator is made over a view
 * of the container that has no application-wide configuration.
 */
@Injectable()
export class WebhookHandlerContext {
  private readonly creator: ExternalContextCreator;

  constructor(hostCreator: ExternalContextCreator) {
    const { container } = hostCreator as unknown as { container: Container };
    const withoutGlobals = Object.create(container, {
      applicationConfig: { value: undefined },
    }) as Container;
    this.creator = ExternalContextCreator.fromContainer(withoutGlobals);
    this.markGuardRefusals(this.creator);
  }

  /** A guard that refuses is logged and answered as one, and not as a failed handler. */
  private markGuardRefusals(creator: ExternalContextCreator): void {
    const createGuardsFn = creator.createGuardsFn.bind(creator);
    creator.createGuardsFn = (guards, instance, callback, contextType) => {
      const canActivate = createGuardsFn(guards, instance, callback, contextType);
      if (canActivate === null) return null;
      return async (args: unknown[]): Promise<void> => {
        try {
          await canActivate(args);
        } catch (error) {
          markGuardRefusal(error);
          throw error;
        }
      };
    };
  }

  /**
   * @param scope - context id and inquirer of a request-scoped instance; absent for a singleton
   */
  wrap(
    instance: object,
    methodName: string,
    scope?: { readonly contextId: ContextId; readonly inquirerId: string },
  ): (event: WebhookEvent) => Promise<unknown> {
    const method = (instance as Record<string, Method>)[methodName]!;
    return this.creator.create(
      instance,
      method,
      methodName,
      ROUTE_ARGUMENTS,
      parameters,
      scope?.contextId,
      scope?.inquirerId,
      // Without filters of its own a handler's error must come back as it was thrown; Nest's
      // stand-in filter would log it and wrap nothing.
      { guards: true, interceptors: true, filters: hasFilters(instance, method) },
      WEBHOOK_CONTEXT_TYPE as 'http',
    ) as (event: WebhookEvent) => Promise<unknown>;
  }
}

function hasFilters(instance: object, method: Method): boolean {
  return Reflect.hasMetadata(FILTERS, method) || Reflect.hasMetadata(FILTERS, instance.constructor);
}
