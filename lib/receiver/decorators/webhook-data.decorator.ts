import {
  createParamDecorator,
  type ExecutionContext,
  type PipeTransform,
  type Type,
} from '@nestjs/common';
import type { StandardSchema } from '../../events/data-checks.js';
import { addDataParameter, parameterType } from '../handlers/handler-metadata.js';
import { validateWithSchema } from '../handlers/payload-validator.js';
import { WEBHOOK_CONTEXT_TYPE } from '../receiver.constants.js';
import { receptionOf, type AdapterRequest } from '../node-request.js';
import { internalsOf, type WebhookEvent } from '../webhook-event.js';

/** What `@WebhookData` takes. */
export interface WebhookDataOptions {
  /** One member of the data instead of the whole. */
  readonly property?: string | undefined;
  /** Validates the parameter; the method gets its result. */
  readonly schema?: StandardSchema | undefined;
}

type Pipe = Type<PipeTransform> | PipeTransform;

/**
 * The event's data, or one member of it.
 *
 * A parameter typed with a class-validator DTO is validated and transformed; with a schema, the schema validates it instead. Invalid
 * data is answered 422, on mounted paths and on routes.
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
  ...pipes: readonly Pipe[]
): ParameterDecorator {
  const options = typeof what === 'string' ? { property: what } : (what ?? {});
  return (target, key, index) => {
    addDataParameter(target, key!, { index, hasSchema: options.schema !== undefined });
    // Nest's own ValidationPipe skips custom parameters, so the type is read and applied here.
    createParamDecorator((_: unknown, context: ExecutionContext) =>
      dataFor(context, options, parameterType(target, key!, index)),
    )(undefined, ...pipes)(target, key, index);
  };
}

/**
 * The verified event: id, name, issuer, claims, raw body.
 */
export const WebhookContext: () => ParameterDecorator = createParamDecorator(
  (_: unknown, context: ExecutionContext) => eventOf(context),
);

function dataFor(
  context: ExecutionContext,
  { property, schema }: WebhookDataOptions,
  metatype: unknown,
): unknown {
  const event = eventOf(context);
  const data =
    property === undefined
      ? event.data
      : (event.data as Readonly<Record<string, unknown>> | null | undefined)?.[property];
  if (schema !== undefined) return validateWithSchema(data, schema);
  const { validator } = internalsOf(event);
  return validator === undefined ? data : validator.validate(data, metatype);
}

function eventOf(context: ExecutionContext): WebhookEvent {
  if (context.getType<string>() === WEBHOOK_CONTEXT_TYPE) return context.getArgByIndex(0);
  const reception = receptionOf(context.switchToHttp().getRequest<AdapterRequest>());
  if (reception !== undefined) return reception.event;
  throw new Error(
    'No webhook was verified on this request: put @WebhookRoute() or @UseGuards(WebhookGuard) on the route.',
  );
}
