import {
  assignMetadata,
  type CallHandler,
  Catch,
  createParamDecorator,
  type ExceptionFilter,
  type ExecutionContext,
  Injectable,
  type NestInterceptor,
  type PipeTransform,
  type Type,
} from '@nestjs/common';
import {
  ApplicationConfig,
  type ContextId,
  ExternalContextCreator,
  ModulesContainer,
  NestContainer,
} from '@nestjs/core';
import type { Observable } from 'rxjs';
import type { StandardSchema } from '../../events/data-checks.js';
import { markGuardRefusal } from '../error-answers.js';
import { receptionOf, type AdapterRequest } from '../node-http.js';
import { WEBHOOK_CONTEXT_TYPE } from '../receiver.constants.js';
import { internalsOf, type WebhookEvent } from '../webhook-event.js';
import { validateWithSchema } from './payload-validator.js';

/** Metadata of a class, by method: the parameters that handlers take, in the form that Nest's ExternalContextCreator reads. */
const HANDLER_PARAMETERS = 'nestjs-webhook-token:parameters';

/** A parameter of a handler; `@WebhookData()` and `@WebhookContext()` record it. */
interface HandlerParameter {
  readonly takes: 'data' | 'event';
  /** Whether a Standard Schema validates it. */
  readonly hasSchema?: boolean;
  /** The event itself, or its data, validated. */
  valueFrom(event: WebhookEvent): unknown;
}

/** What `@WebhookData` takes. */
export interface WebhookDataOptions {
  /** One member of the data instead of the whole. */
  readonly property?: string | undefined;
  /** Validates the parameter; the method gets its result. */
  readonly schema?: StandardSchema | undefined;
}

/**
 * The event's data, or one member of it.
 *
 * A parameter typed with a class-validator DTO is validated and transformed; with a schema, the schema validates it instead. Invalid
 * data is rejected with 422, on mounted paths and on routes.
 *
 * ```ts
 * onCreated(@WebhookData() order: OrderCreatedDto, @WebhookData('id') id: string) {}
 * onPaid(@WebhookData({ schema: Payment }) payment: z.infer<typeof Payment>) {}
 * ```
 *
 * @param what - a member's name, or {@link WebhookDataOptions}; default: the whole data
 * @param pipes - run on the validated value
 */
export function WebhookData(
  what?: string | WebhookDataOptions,
  ...pipes: readonly HandlerPipe[]
): ParameterDecorator {
  const options = typeof what === 'string' ? { property: what } : (what ?? {});
  return (target, key, index) => {
    // Nest's own ValidationPipe skips custom parameters, so the type is read and applied here.
    const type = parameterType(target, key!, index);
    decorateParameter(
      {
        takes: 'data',
        hasSchema: options.schema !== undefined,
        valueFrom: (event) => dataFor(event, options, type),
      },
      pipes,
    )(target, key, index);
  };
}

/**
 * The verified event: id, name, issuer, claims, raw body.
 *
 * @param pipes - run on the event
 */
export function WebhookContext(...pipes: readonly HandlerPipe[]): ParameterDecorator {
  return decorateParameter({ takes: 'event', valueFrom: (event) => event }, pipes);
}

/** Decorates a parameter twice: for Nest, which calls routes, and for the dispatcher, which calls handlers. */
function decorateParameter(
  parameter: HandlerParameter,
  pipes: readonly HandlerPipe[],
): ParameterDecorator {
  const onRoute = createParamDecorator((_: unknown, context: ExecutionContext) =>
    parameter.valueFrom(eventOf(context)),
  );
  return (target, key, index) => {
    addParameter(target, key!, index, parameter, pipes);
    onRoute(undefined, ...pipes)(target, key, index);
  };
}

function dataFor(
  event: WebhookEvent,
  { property, schema }: WebhookDataOptions,
  metatype: unknown,
): unknown {
  const data =
    property === undefined
      ? event.data
      : (event.data as Readonly<Record<string, unknown>> | null | undefined)?.[property];
  if (schema !== undefined) return validateWithSchema(data, schema);
  const { validator } = internalsOf(event);
  return validator === undefined ? data : validator.validate(data, metatype);
}

function eventOf(context: ExecutionContext): WebhookEvent {
  const reception = receptionOf(context.switchToHttp().getRequest<AdapterRequest>());
  if (reception !== undefined) return reception.event;
  throw new Error(
    'No webhook was verified on this request: put @WebhookRoute() or @UseGuards(WebhookGuard) on the route.',
  );
}

/** Parameter decorators run before method decorators: if there are none by now, data and event are passed by position. */
export function takeByPosition(target: object, key: string | symbol): void {
  if (hasParameters(target, key)) return;
  const parameters = Reflect.getMetadata('design:paramtypes', target, key) as unknown[] | undefined;
  if (parameters === undefined || parameters.length > 0) WebhookData()(target, key, 0);
  if (parameters === undefined || parameters.length > 1) WebhookContext()(target, key, 1);
}

/** A pipe of a parameter. */
type HandlerPipe = Type<PipeTransform> | PipeTransform;

/** A number that Nest has for none of its own parameter decorators. */
const PARAMETER_TYPE = 100;

type Parameters = Record<
  string,
  { readonly index: number; readonly data?: unknown; readonly pipes: unknown }
>;

/** Records what a parameter of a method takes. */
function addParameter(
  target: object,
  key: string | symbol,
  index: number,
  parameter: HandlerParameter,
  pipes: readonly HandlerPipe[],
): void {
  const all = assignMetadata(parametersOf(target, key), PARAMETER_TYPE, index, parameter, ...pipes);
  Reflect.defineMetadata(HANDLER_PARAMETERS, all, target.constructor, key);
}

/** Whether a parameter of a method is decorated for an event. */
function hasParameters(target: object, key: string | symbol): boolean {
  return Object.keys(parametersOf(target, key)).length > 0;
}

/** The parameters of a method that take event data. */
export function dataParameters(
  target: object,
  key: string | symbol,
): readonly { readonly index: number; readonly hasSchema: boolean }[] {
  return Object.values(parametersOf(target, key)).flatMap(({ index, data }) => {
    const { takes, hasSchema = false } = data as HandlerParameter;
    return takes === 'data' ? [{ index, hasSchema }] : [];
  });
}

function parametersOf(target: object, key: string | symbol): Parameters {
  const known: unknown = Reflect.getMetadata(HANDLER_PARAMETERS, target.constructor, key);
  return (known as Parameters | undefined) ?? {};
}

/** The type of a parameter, as the compiler recorded it. */
export function parameterType(target: object, key: string | symbol, index: number): unknown {
  const types: unknown = Reflect.getMetadata('design:paramtypes', target, key);
  return (types as readonly unknown[] | undefined)?.[index];
}

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
