import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import type { StandardSchema } from '../../events/data-checks.js';
import {
  addParameter,
  type HandlerParameter,
  type HandlerPipe,
  hasDecoratedParameters,
  parametersByIndex,
  parameterTypes,
} from '../handlers/handler-metadata.js';
import { validateWithSchema } from '../handlers/payload-validator.js';
import { type AdapterRequest, receptionOf } from '../node-http.js';
import { internalsOf, WebhookEvent } from '../webhook-event.js';

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
  return (target, key, index) =>
    decorateParameter(dataParameter(options, target, key!, index), pipes)(target, key, index);
}

/**
 * The verified event: id, name, issuer, claims, raw body.
 *
 * @param pipes - run on the event
 */
export function WebhookContext(...pipes: readonly HandlerPipe[]): ParameterDecorator {
  return decorateParameter(EVENT_PARAMETER, pipes);
}

const EVENT_PARAMETER: HandlerParameter = { takes: 'event', valueFrom: (event) => event };

function dataParameter(
  options: WebhookDataOptions,
  target: object,
  key: string | symbol,
  index: number,
): HandlerParameter {
  // Nest's own ValidationPipe skips custom parameters, so the type is read and applied here.
  const type = parameterTypes(target, key)?.[index];
  return {
    takes: 'data',
    hasSchema: options.schema !== undefined,
    valueFrom: (event) => dataFor(event, options, type),
  };
}

/** Decorates a parameter twice: for Nest, which calls routes, and for the dispatcher, which calls handlers. */
function decorateParameter(
  parameter: HandlerParameter,
  pipes: readonly HandlerPipe[],
): ParameterDecorator {
  return (target, key, index) => {
    addParameter(target, key!, index, parameter, pipes);
    hideEventType(target, key!, index);
    onRoute(parameter, ...pipes)(target, key, index);
  };
}

/** Records the event's type as `Object`: a ValidationPipe with `validateCustomDecorators` would build another event from this one. */
function hideEventType(target: object, key: string | symbol, index: number): void {
  const types = parameterTypes(target, key);
  if (types?.[index] !== WebhookEvent) return;
  Reflect.defineMetadata('design:paramtypes', types.with(index, Object), target, key);
}

/** One decorator for all parameters, so that Nest replaces what an overridden method takes at the same position. */
const onRoute = createParamDecorator(({ valueFrom }: HandlerParameter, context: ExecutionContext) =>
  valueFrom(eventOf(context)),
);

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
  return internalsOf(event).validator.validate(data, metatype);
}

function eventOf(context: ExecutionContext): WebhookEvent {
  const reception = receptionOf(context.switchToHttp().getRequest<AdapterRequest>());
  if (reception !== undefined) return reception.event;
  throw new Error(
    'No webhook was verified on this request: put @WebhookRoute() or @UseGuards(WebhookGuard) on the route.',
  );
}

/**
 * Records that a method without decorated parameters takes data and event by position: parameter decorators run before method decorators.
 *
 * @param length - how many parameters it has, if the compiler did not record their types
 */
export function takeByPosition(target: object, key: string | symbol, length = 2): void {
  if (parametersByIndex(target, key).size > 0) return;
  const types = parameterTypes(target, key);
  const [data, event] = types?.[0] === WebhookEvent ? [1, 0] : [0, 1];
  const take = (index: number, parameter: HandlerParameter): void => {
    if (index >= (types?.length ?? length)) return;
    addParameter(target, key, index, { ...parameter, isByPosition: true }, []);
    hideEventType(target, key, index);
  };
  take(data, dataParameter({}, target, key, data));
  take(event, EVENT_PARAMETER);
}

/** Makes Nest pass data and event by position to the method of a `@WebhookRoute()` without decorated parameters. */
export function routeByPosition(target: object, key: string | symbol, length: number): void {
  if (hasDecoratedParameters(target, key)) return;
  takeByPosition(target, key, length);
  for (const [index, parameter] of parametersByIndex(target, key)) {
    onRoute(parameter)(target, key, index);
  }
}
