/**
 * The events of the application, name to data. Empty until the application declares them:
 *
 * ```ts
 * declare module 'nestjs-webhook-token' {
 *   interface WebhookEventMap {
 *     'order.created': { id: string; total: number };
 *   }
 * }
 * ```
 *
 * Names and data are then checked at compile time, in `publish` and in the test helpers; in handlers, names and the
 * shape of the data. Without a declaration, every name is allowed and data is `unknown`.
 */
export interface WebhookEventMap {}

/** Names of the declared events; any string until one is declared. */
export type WebhookEventName = keyof WebhookEventMap extends never
  ? string
  : Extract<keyof WebhookEventMap, string>;

type Segments<Name extends string> = Name extends `${infer Head}.${infer Rest}`
  ? [Head, ...Segments<Rest>]
  : [Name];

type SegmentsMatch<Pattern extends string[], Name extends string[]> = Pattern extends [
  infer First extends string,
  ...infer PatternRest extends string[],
]
  ? First extends '**'
    ? SegmentsMatch<PatternRest, Name> extends true
      ? true
      : Name extends [string, ...infer NameRest extends string[]]
        ? SegmentsMatch<Pattern, NameRest>
        : false
    : Name extends [infer Segment, ...infer NameRest extends string[]]
      ? First extends '*' | Segment
        ? SegmentsMatch<PatternRest, NameRest>
        : false
      : false
  : Name extends []
    ? true
    : false;

type NamesMatching<Pattern extends string, Name = WebhookEventName> = Pattern extends string
  ? Name extends string
    ? SegmentsMatch<Segments<Pattern>, Segments<Name>> extends true
      ? Name
      : never
    : never
  : never;

/**
 * The declared event names a pattern matches: `order.*` gives a union, and so does a union of patterns.
 * A pattern of type `string`, as in `WebhookEvent` without an argument, matches every name.
 */
// The template literal condition is always true. It makes TypeScript compare two `WebhookEvent<…>` by their members
// instead of their patterns, of which `order.created` is not a subtype of `order.*`.
export type WebhookEventsMatching<Pattern extends string> = keyof WebhookEventMap extends never
  ? string
  : `.${Pattern}` extends `.${string}`
    ? string extends Pattern
      ? WebhookEventName
      : NamesMatching<Pattern>
    : never;

/** An event name, or a pattern with `*` for one segment and `**` for any number of them. */
export type WebhookEventPattern = keyof WebhookEventMap extends never
  ? string
  : | WebhookEventName
    | '**'
    | `${string}.*`
    | `*.${string}`
    | `${string}.**`
    | `**.${string}`
    | `${string}.*.${string}`
    | `${string}.**.${string}`;

/** The data of an event, or the union over all events a pattern matches. */
export type WebhookEventData<Pattern extends string> = keyof WebhookEventMap extends never
  ? unknown
  : WebhookEventMap[WebhookEventsMatching<Pattern> & keyof WebhookEventMap];
