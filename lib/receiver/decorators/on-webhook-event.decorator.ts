import { WebhookConfigurationError } from '../../errors/webhook.error.js';
import { requireRunnable } from '../../options/decorated-methods.js';
import { readOptions } from '../../options/read-options.js';
import { object, optional, text } from '../../options/rules.js';
import type {
  WebhookEventData,
  WebhookEventMap,
  WebhookEventName,
  WebhookEventPattern,
  WebhookEventsMatching,
} from '../../token/webhook-event-map.js';
import type { WebhookEvent } from '../webhook-event.js';
import { addSubscription } from '../handlers/handler-metadata.js';
import { takeByPosition } from './webhook-data.decorator.js';

type AnyMethod = (...args: never[]) => unknown;

/** Used instead of `never`, so that the compiler's message names the event and its declared data. */
interface HandlerDoesNotFit<Pattern extends string, Data> {
  readonly 'the parameters do not fit the declared data of': [Pattern, Data];
}

type Accepts<Parameter, Value> = [Value] extends [Parameter] ? true : false;

/** Every member name of the objects in a union; `keyof` alone gives those they share. */
type MemberNames<Type> = Type extends object ? keyof Type : never;

type SharesMemberNames<Parameter, Value> = [MemberNames<Parameter> & MemberNames<Value>] extends [
  never,
]
  ? false
  : true;

/** Whether a parameter can be made from an event's data: by member names, since pipes and schemas change types. */
type CanBeMadeFrom<Parameter, Value> = unknown extends Value
  ? true
  : Accepts<Parameter, Value> extends true
    ? true
    : // A string or number has no members to compare, and a schema may parse anything from it.
      [Extract<Value, string | number | boolean>] extends [never]
      ? SharesMemberNames<Parameter, Value>
      : true;

/** The events whose data the parameter cannot hold: it must fit every event that the pattern matches. */
type EventsThatDoNotFit<Parameter, Name> = Name extends keyof WebhookEventMap
  ? CanBeMadeFrom<Parameter, WebhookEventMap[Name]> extends true
    ? never
    : Name
  : never;

/** Member by member: in a union, a narrow type would disappear in a wide one. */
type MemberFits<Parameter, Data> = Data extends unknown
  ? {
      [Key in keyof Data]-?: Accepts<Parameter, Data[Key]> extends true
        ? true
        : SharesMemberNames<Parameter, Data[Key]>;
    }[keyof Data]
  : never;

type CanBeData<Parameter, Pattern extends string> = [
  EventsThatDoNotFit<Parameter, WebhookEventsMatching<Pattern>>,
] extends [never]
  ? true
  : false;

type IsEvent<Parameter> = [Parameter] extends [WebhookEvent] ? true : false;

/** A parameter typed as an event of another name can never receive it, however it is decorated. */
type IsOtherEvent<Parameter, Pattern extends string> =
  IsEvent<Parameter> extends true
    ? Accepts<Parameter, WebhookEvent<Pattern>> extends true
      ? false
      : true
    : false;

type HasOtherEvent<Parameters extends readonly unknown[], Pattern extends string> = true extends {
  [Index in keyof Parameters]: IsOtherEvent<Parameters[Index], Pattern>;
}[number]
  ? true
  : false;

/** Without decorators only the first parameter is the data; a later one that fits must therefore be decorated. */
type HasDataLater<Rest extends readonly unknown[], Pattern extends string> = true extends {
  [Index in keyof Rest]: IsEvent<Rest[Index]> extends true
    ? false
    : SharesMemberNames<Rest[Index], WebhookEventData<Pattern>>;
}[number]
  ? true
  : false;

type FirstFits<First, Rest extends readonly unknown[], Pattern extends string> =
  IsEvent<First> extends true
    ? true
    : CanBeData<First, Pattern> extends true
      ? true
      : true extends MemberFits<First, WebhookEventData<Pattern>>
        ? true
        : HasDataLater<Rest, Pattern>;

type ParametersFit<Parameters extends readonly unknown[], Pattern extends string> =
  HasOtherEvent<Parameters, Pattern> extends true
    ? false
    : Parameters extends readonly [infer First, ...infer Rest]
      ? FirstFits<First, Rest, Pattern>
      : true;

type Fits<Method extends AnyMethod, Pattern extends string> = keyof WebhookEventMap extends never
  ? true
  : ParametersFit<Required<Parameters<Method>>, Pattern>;

/** The compiler's message for a name or pattern that matches none of the declared events. */
interface NoSuchEvent<Pattern extends string> {
  readonly 'no declared event matches': Pattern;
}

/** Distinguishes a template-literal type from a literal one: only a literal is a known member. */
interface EveryName {
  readonly [name: string]: true;
}

/** Only literal patterns are reported: one of a template-literal type may match. */
type Unmatched<Pattern extends string> = Pattern extends WebhookEventPattern
  ? EveryName extends { [Name in Pattern]: true }
    ? never
    : [WebhookEventsMatching<Pattern>] extends [never]
      ? Pattern
      : never
  : Pattern;

/** Names the declared events if one is not matched: editors suggest them, and the compiler's message lists them. */
type Events<Pattern extends string> = [Unmatched<Pattern>] extends [never]
  ? Pattern | readonly Pattern[]
  : NoSuchEvent<Unmatched<Pattern>> | WebhookEventName;

interface OnWebhookEventOptions {
  /** Handle only the events of this receiver; default: of every receiver. */
  readonly receiver?: string | undefined;
}

const OPTIONS = object<OnWebhookEventOptions>()({
  receiver: optional(text('must be the name of a receiver')),
});

/**
 * A method decorator that checks the method's parameters against the declared events.
 *
 * It refuses a first parameter that is neither the event nor a member of the data and shares no member name with the data (unless
 * a later one does), and an event of another name. Member types are not compared, since pipes and schemas change them.
 */
type WebhookHandlerDecorator<Pattern extends string> = <Method extends AnyMethod>(
  target: object,
  key: string | symbol,
  descriptor: TypedPropertyDescriptor<
    Fits<Method, Pattern> extends true
      ? Method
      : Method & HandlerDoesNotFit<Pattern, WebhookEventData<Pattern>>
  >,
) => void;

/**
 * Makes a method handle these events, on any provider or controller of any scope.
 *
 * Without parameter decorators it is called with `(data, event)`, or with `(event, data)` if the class `WebhookEvent` is the type of the
 * first one. The sender gets its success when the returned promise resolves; if
 * it rejects, the sender tries again.
 *
 * @param events - a name, a pattern (`order.*` matches one segment, `refund.**` any number), or several
 * @param options.receiver - handle only the events of this receiver; default: of every receiver
 * @throws {@link WebhookConfigurationError} when the class is defined, for a missing or empty list of events, for a misspelt option,
 *   and for a static or generator method, which would never run
 */
// A constraint of `WebhookEventPattern` would list every form of pattern in the message for a misspelt name.
export function OnWebhookEvent<const Pattern extends WebhookEventPattern | (string & {})>(
  events: Events<Pattern>,
  options: OnWebhookEventOptions = {},
): WebhookHandlerDecorator<Pattern> {
  return (target, key, descriptor) => {
    requireRunnable('@OnWebhookEvent', target, key, descriptor.value);
    const path = `${target.constructor.name}.${String(key)}`;
    const { receiver } = readOptions(OPTIONS, options, `${path}: options of @OnWebhookEvent`);
    const patterns: readonly unknown[] = Array.isArray(events) ? events : [events];
    if (patterns.length === 0 || !patterns.every((one) => typeof one === 'string')) {
      const message =
        patterns.length === 0
          ? 'the list of events is empty, so the handler would never run'
          : 'the events of @OnWebhookEvent must be strings (is a constant imported from a file that imports this one?)';
      throw new WebhookConfigurationError([
        { path, message: `${message}; name an event, or "**" for every event` },
      ]);
    }
    const method = descriptor.value as object;
    takeByPosition(target, key);
    addSubscription(method, { patterns, receiver });
  };
}
