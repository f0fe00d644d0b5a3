import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import type { StandardSchema } from '../../events/data-checks.js';
import {
  addParameter,
  type HandlerParameter,
  type HandlerPipe,
  hasParameters,
  parameterType,
} from '../handlers/handler-metadata.js';
import { validateWithSchema } from '../handlers/payload-validator.js';
import { type AdapterRequest, receptionOf } from '../node-http.js';
import { internalsOf, type WebhookEvent } from '../webhook-event.js';

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
