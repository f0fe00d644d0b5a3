import type {
  WebhookEventData,
  WebhookEventMap,
  WebhookEventPattern,
} from '../../token/webhook-event-map.js';
import type { WebhookEvent } from '../webhook-event.js';
import { addSubscription } from '../handlers/webhook-subscription.js';
import { WebhookContext, WebhookData } from './webhook-data.decorator.js';

/** Where Nest keeps the parameter decorators of a method, on its class. */
const ROUTE_ARGUMENTS = '__routeArguments__';

type AnyMethod = (...args: never[]) => unknown;

/** Told instead of `never`, so that the compiler's message says what is wrong. */
interface HandlerDoesNotFit<Pattern extends string> {
  readonly 'the parameters do not fit the declared data of': Pattern;
}

type Accepts<Parameter, Value> = [Value] extends [Parameter] ? true : false;

/** `(data, event)`, with fewer or no parameters too. */
type FitsByPosition<Parameters, Pattern extends string> = Parameters extends []
  ? true
  : Parameters extends [infer Data, ...infer Rest]
    ? Accepts<Data, WebhookEventData<Pattern>> extends true
      ? Rest extends [infer Event, ...unknown[]]
        ? Accepts<Event, WebhookEvent<Pattern>>
        : true
      : false
    : true;

/** Parameters in any order, each the data, one member of it, or the event: they have decorators. */
type FitsByDecorator<Parameters, Pattern extends string> = Parameters extends [
  infer First,
  ...infer Rest,
]
  ? First extends WebhookEvent
    ? Accepts<First, WebhookEvent<Pattern>> extends true
      ? FitsByDecorator<Rest, Pattern>
      : false
    : Accepts<First, WebhookEventData<Pattern>> extends true
      ? FitsByDecorator<Rest, Pattern>
      : true extends AcceptsMember<First, WebhookEventData<Pattern>>
        ? FitsByDecorator<Rest, Pattern>
        : false
  : true;

/** Member by member: in their union, a narrow type would disappear in a wide one beside it. */
type AcceptsMember<Parameter, Data> = Data extends unknown
  ? { [Key in keyof Data]-?: Accepts<Parameter, Data[Key]> }[keyof Data]
  : never;

type Fits<Method extends AnyMethod, Pattern extends string> = keyof WebhookEventMap extends never
  ? true
  : FitsByPosition<Parameters<Method>, Pattern> extends true
    ? true
    : FitsByDecorator<Parameters<Method>, Pattern>;

/** A method decorator that checks the method's parameters against the declared events. */
export type WebhookHandlerDecorator<Pattern extends string> = <Method extends AnyMethod>(
  target: object,
  key: string | symbol,
  descriptor: TypedPropertyDescriptor<
    Fits<Method, Pattern> extends true ? Method : Method & HandlerDoesNotFit<Pattern>
  >,
) => void;

/**
 * The method handles these events, on any provider or controller of any scope.
 *
 * Without parameter decorators it is called with `(data, event)`. It is done when its promise settles:
 * the sender gets its success only then, and a failure makes the sender try again.
 *
 * @param events - a name, a pattern (`order.*` one segment, `refund.**` any number), or several
 * @param options.receiver - take only the events of this receiver; default: of every one
 */
export function OnWebhookEvent<const Pattern extends WebhookEventPattern>(
  events: Pattern | readonly Pattern[],
  options: { readonly receiver?: string | undefined } = {},
): WebhookHandlerDecorator<Pattern> {
  const patterns = typeof events === 'string' ? [events] : [...events];
  return (target, key, descriptor) => {
    takeByPosition(target, key);
    addSubscription(descriptor.value as object, { patterns, receiver: options.receiver });
  };
}

/** Parameter decorators run before method decorators: with none so far, the two usual ones are put. */
function takeByPosition(target: object, key: string | symbol): void {
  const decorated = Reflect.getMetadata(ROUTE_ARGUMENTS, target.constructor, key) as
    object | undefined;
  if (decorated !== undefined && Object.keys(decorated).length > 0) return;
  const parameters = Reflect.getMetadata('design:paramtypes', target, key) as unknown[] | undefined;
  if (parameters === undefined || parameters.length > 0) WebhookData()(target, key, 0);
  if (parameters === undefined || parameters.length > 1) WebhookContext()(target, key, 1);
}
