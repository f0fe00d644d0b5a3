import { Injectable } from '@nestjs/common';
import { ExternalContextCreator, type ContextId } from '@nestjs/core';
import { markGuardRefusal } from '../answers.js';
import { WEBHOOK_CONTEXT_TYPE } from '../receiver.constants.js';
import type { WebhookEvent } from '../webhook-event.js';
import { ROUTE_ARGUMENTS } from './handler-metadata.js';

/** Where Nest keeps the filters of a class or a method; it does not export the key. */
const FILTERS = '__exceptionFilters__';

/** Nest's numbers for the parameters of `@Req()` and `@Body()`, which handlers may use too. */
const REQUEST_PARAMETER = 0;
const BODY_PARAMETER = 3;

type Method = (...args: unknown[]) => unknown;

/** Nest's container. */
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
 * Applies a handler's own pipes, guards, interceptors and filters.
 *
 * The application's global ones are left out, since they are for HTTP requests: a global guard would refuse the event, and a global
 * filter could turn a failure into a success. Nest has no option for that, so the creator gets a view of the container without
 * the application's configuration.
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
      // Without filters of its own, a handler's error must be rethrown unchanged; Nest's default filter would log it.
      { guards: true, interceptors: true, filters: hasFilters(instance, method) },
      WEBHOOK_CONTEXT_TYPE as 'http',
    ) as (event: WebhookEvent) => Promise<unknown>;
  }
}

function hasFilters(instance: object, method: Method): boolean {
  return Reflect.hasMetadata(FILTERS, method) || Reflect.hasMetadata(FILTERS, instance.constructor);
}
