import { Injectable } from '@nestjs/common';
import { ExternalContextCreator, type ContextId } from '@nestjs/core';
import { isObservable, lastValueFrom } from 'rxjs';
import { markGuardRefusal } from '../answers/webhook-answer.js';
import {
  parameterType,
  REQUEST_PARAMETER,
  ROUTE_ARGUMENTS,
  takesByPosition,
} from './handler-metadata.js';
import { isClass } from './payload-validator.js';
import { WEBHOOK_CONTEXT_TYPE } from '../receiver.constants.js';
import type { WebhookEvent } from '../webhook-event.js';

/** Where Nest keeps what is bound to a class or a method. */
const FILTERS = '__exceptionFilters__';
const ENHANCERS = ['__guards__', '__pipes__', '__interceptors__', FILTERS];

/** Nest's number for the parameter of `@Body()`, which handlers may use too, as `@Req()`. */
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
    if (isPlain(instance, method, methodName)) {
      return async (event) => valueOf(await method.call(instance, event.data, event));
    }
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

/**
 * Whether a handler takes `(data, event)` by position, and nothing is bound to it that would act on them: it is called directly,
 * which takes a third of the time (benchmark `receive`).
 */
function isPlain(instance: object, method: Method, methodName: string): boolean {
  const prototype = Object.getPrototypeOf(instance) as object;
  return (
    takesByPosition(prototype, methodName) &&
    !isClass(parameterType(prototype, methodName, 0)) &&
    !ENHANCERS.some(
      (key) => Reflect.hasMetadata(key, method) || Reflect.hasMetadata(key, instance.constructor),
    )
  );
}

/** The value of what a handler returned, which may be an Observable, as on a route of Nest. */
function valueOf(result: unknown): unknown {
  return isObservable(result) ? lastValueFrom(result) : result;
}

function hasFilters(instance: object, method: Method): boolean {
  return Reflect.hasMetadata(FILTERS, method) || Reflect.hasMetadata(FILTERS, instance.constructor);
}
