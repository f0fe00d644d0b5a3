import { createHmac } from 'node:crypto';
import type { CanActivate, DynamicModule, ForwardReference, Type } from '@nestjs/common';
import { DAY, type Duration, HOUR, MINUTE } from '../clock/duration.js';
import { isLoopback } from '../egress/egress-policy.js';
import { readOptions } from '../options/read-options.js';
import {
  duration,
  filled,
  flag,
  func,
  list,
  object,
  oneOf,
  optional,
  type Read,
  required,
  type Rule,
  rule,
} from '../options/rules.js';
import { unprinted } from '../options/unprinted.js';
import type { ConsoleBrand, ConsoleCapability, PortalCapability } from './console-api.js';

/** A payload before it is shown. */
export interface ShownPayload {
  readonly contentType: string;
  readonly bytes: Uint8Array;
  /** The event's name. */
  readonly event: string;
  /** `answer`: what an endpoint answered, which may repeat the payload. */
  readonly source: 'delivery' | 'inbox' | 'answer';
  readonly tenant?: string;
}

/** The portal: the console for one tenant. */
export interface WebhookPortalOptions {
  /** Where partners reach the portal, as they see it: `https://shop.example/webhooks/portal`. */
  readonly url: string;
  /** Signs links and sessions: at least 32 bytes, used for nothing else. A new one ends all sessions. */
  readonly secret: string | undefined;
  /** Where it is mounted; default `webhooks/portal`, under the application's global prefix and version. */
  readonly path?: string | undefined;
  /** How long a session lasts after a link was opened; default `'1h'`, at most `'24h'`. */
  readonly sessionLifetime?: Duration | undefined;
  /**
   * Origins whose pages may show the portal in a frame, such as `['https://app.example']`; default: none. The session's cookie is then
   * one of third parties (`SameSite=None; Secure; Partitioned`).
   */
  readonly frameAncestors?: readonly string[] | undefined;
  /** Origins to which links may lead back by their `returnUrl`; default: none. */
  readonly returnOrigins?: readonly string[] | undefined;
}

/** How long the record of actions is kept. */
export interface ConsoleActivityOptions {
  /** Default `'90d'`. */
  readonly keepFor?: Duration | undefined;
}

/** Something that operators and the tenant should know. It contains no URL of an endpoint, no payload and no secret. */
export interface WebhookAlert {
  readonly type:
    /** The endpoint has failed for `failingFor`. */
    | 'endpoint-failing'
    /** The endpoint receives nothing more: it answered 410, or has failed for too long. */
    | 'endpoint-disabled'
    /** It works again after one of these. */
    | 'endpoint-recovered'
    /** The oldest due delivery is late by `lag`. */
    | 'queue-lagging'
    /** No delivery is late any more. */
    | 'queue-recovered';
  readonly at: Date;
  /** When the failure or the delay began. */
  readonly since: Date;
  /** Absent for alerts of the queue. */
  readonly endpointId?: string;
  /** Whose endpoint it is; absent if it belongs to no tenant. */
  readonly tenant?: string;
  /** Why, such as `http_503`. */
  readonly reason?: string;
  /** With `queue-lagging`: by how many milliseconds the oldest due delivery was late when the alert began. */
  readonly lagMs?: number;
  /** The endpoint in the console, for operators; absent without `alerts.url`. */
  readonly consoleUrl?: string;
  /** The endpoint in the portal, for a tenant with a session; absent without a portal. Make a link for others. */
  readonly portalUrl?: string;
}

/** When alerts are sent, and how. */
export interface WebhookAlertOptions {
  /** Sends an alert. If it rejects, the error is logged, and an alert that a failure began is sent again a minute later. */
  readonly send: (alert: WebhookAlert) => unknown;
  /** How long an endpoint fails before an alert; default `'5m'`. */
  readonly failingFor?: Duration | undefined;
  /** By how much the oldest due delivery is late before an alert; default `'5m'`. */
  readonly lag?: Duration | undefined;
  /** Where operators reach the console, for the link of an alert: `https://ops.example/webhooks/console`. */
  readonly url?: string | undefined;
}

/** Options of `WebhookConsoleModule`. */
export interface WebhookConsoleOptions {
  /** Where the console is mounted; default `webhooks/console`, under the application's global prefix and version. */
  readonly path?: string | undefined;
  /** What its users may do; default `['view']`. */
  readonly capabilities?: readonly ConsoleCapability[] | undefined;
  /** Names the user of a request, for the record of actions: `(request) => request.user.email`. */
  readonly actor?: ((request: never) => string | undefined) | undefined;
  /**
   * Changes a payload, or an endpoint's answer, before it is shown. If it throws, or returns anything else, nothing is shown.
   */
  readonly redact?: ((payload: ShownPayload) => Uint8Array | string | undefined) | undefined;
  /**
   * Origins at which browsers open the console, such as `https://ops.example`. Set it if a proxy changes the `Host` header. Changes
   * from any other origin are refused; default: the origin that `Host` names.
   */
  readonly origins?: readonly string[] | undefined;
  /** Start without a guard outside development, because something else protects the path; default `false`. */
  readonly allowUnguarded?: boolean | undefined;
  /** Name, colour and logo. */
  readonly brand?: Partial<ConsoleBrand> | undefined;
  /** Language of the page, as a BCP 47 tag such as `'de'`; default `'en'`. The page falls back to English. */
  readonly language?: string | undefined;
  /** The record of what users did. */
  readonly activity?: ConsoleActivityOptions | undefined;
  /** Reports failing, disabled and recovered endpoints, and late deliveries; default: nothing. */
  readonly alerts?: WebhookAlertOptions | undefined;
  /** The partner portal; default: none. */
  readonly portal?: WebhookPortalOptions | undefined;
}

/** What shapes the module and its controllers, so that it is needed before a factory runs. */
export interface WebhookConsoleExtras {
  /** Modules that guards and the factory inject from. */
  readonly imports?:
    readonly (Type | DynamicModule | Promise<DynamicModule> | ForwardReference)[] | undefined;
  /** Guards of the console, beside the application's global ones. */
  readonly guards?: readonly (Type<CanActivate> | CanActivate)[] | undefined;
  /** Decorators of the console's controller: `[Roles('admin')]`. */
  readonly decorators?: readonly ClassDecorator[] | undefined;
  /** Decorators of the portal's controller, such as the one that exempts a route from a global guard: `[Public()]`. */
  readonly portalDecorators?: readonly ClassDecorator[] | undefined;
}

export type ResolvedConsole = Readonly<ReturnType<typeof resolveConsole>>;

/** The options of the portal, checked and filled. Durations are milliseconds. */
export type ResolvedPortal = Readonly<ReturnType<typeof resolvePortal>>;

/** Injection token of the {@link ResolvedConsole}. */
export const CONSOLE_OPTIONS = Symbol('options of WebhookConsoleModule');

const OF_TENANTS = [
  'view',
  'view-payload',
  'redeliver',
  'manage-endpoints',
  'manage-secrets',
] as const;
const CAPABILITY_LIST = "must be a list, such as ['view', 'redeliver']";

/** What the users of a portal may do. */
export const PORTAL_CAPABILITIES: Rule<readonly PortalCapability[]> = list(
  oneOf(...OF_TENANTS),
  CAPABILITY_LIST,
);

const CAPABILITIES: Rule<readonly ConsoleCapability[]> = list(
  oneOf(...OF_TENANTS, 'share', 'erase'),
  CAPABILITY_LIST,
);

const MIN_SECRET_BYTES = 32;

const PATH = /^[\w.~-]+(?:\/[\w.~-]+)*$/;
const COLOR = /^#(?:[\da-f]{3}|[\da-f]{6})$/i;
const LOGO =
  /^(?:https:\/\/[^\s;,'"]+|data:image\/(?:png|jpeg|gif|webp|svg\+xml)[;,][^\s'"]+|[\w./~-]+)$/i;
const MAX_LOGO = 65_536;

/** Without leading and trailing slash. */
const path: Rule<string> = (value, at, name) => {
  const plain = typeof value === 'string' ? value.replace(/^\/+|\/+$/g, '') : '';
  if (PATH.test(plain)) return plain;
  return at.add(
    name,
    'must be plain segments, such as "webhooks/console"; the application\'s global prefix is added',
  ) as never;
};

export const DISPLAY_NAME = rule<string>(
  (value) => typeof value === 'string' && value.length >= 1 && value.length <= 100,
  'must be a string of 1 to 100 characters',
);

const BRAND = object<Partial<ConsoleBrand>>()({
  name: optional(DISPLAY_NAME, 'Webhooks'),
  color: optional(
    rule<string>(
      (value) => typeof value === 'string' && COLOR.test(value),
      "must be a hexadecimal colour, such as '#0a66c2'",
    ),
  ),
  logo: optional(
    rule<string>(
      (value) => typeof value === 'string' && value.length <= MAX_LOGO && LOGO.test(value),
      'must be an https URL, a path, or a data:image URL of at most 64 KiB',
    ),
  ),
});

const ORIGINS: Rule<readonly string[]> = rule(
  isOrigins,
  "must be a list of origins without a path, such as ['https://ops.example']",
);

const NO_ORIGINS: readonly string[] = [];

/** A BCP 47 tag, which is read in its canonical form: browsers reject others, and the page looks up its strings by it. */
export const LANGUAGE: Rule<string> = (value, at, name) => {
  const isTag = typeof value === 'string' && /^[a-z]{2,3}(?:-[a-z\d]{2,8}){0,3}$/i.test(value);
  try {
    if (isTag) return Intl.getCanonicalLocales(value)[0]!;
  } catch {
    // A part occurs twice, such as the region.
  }
  return at.add(name, "must be a language tag, such as 'de' or 'pt-BR'") as never;
};

const PORTAL = object<WebhookPortalOptions>()({
  url: rule<string>(
    isPortalUrl,
    'must be the absolute URL of the portal, without query and fragment, such as "https://shop.example/webhooks/portal"; http: is allowed for this machine',
  ),
  secret: rule<string>(
    (value) => typeof value === 'string' && Buffer.byteLength(value) >= MIN_SECRET_BYTES,
    'must be a string of at least 32 bytes that is used for nothing else; is the environment variable set?',
  ),
  path: optional(path, 'webhooks/portal'),
  sessionLifetime: optional(duration({ min: '1m', max: '24h' }), HOUR),
  frameAncestors: optional(ORIGINS, NO_ORIGINS),
  returnOrigins: optional(ORIGINS, NO_ORIGINS),
});

const ALERTS = object<WebhookAlertOptions>()({
  send: required(func<WebhookAlertOptions['send']>('(alert) => …'), 'is required'),
  failingFor: optional(duration({ min: 0 }), 5 * MINUTE),
  lag: optional(duration({ min: '1s' }), 5 * MINUTE),
  url: optional(
    rule<string>(
      isPortalUrl,
      'must be the absolute URL of the console, without query and fragment',
    ),
  ),
});

type Actor = NonNullable<WebhookConsoleOptions['actor']>;
type Redact = NonNullable<WebhookConsoleOptions['redact']>;

const OPTIONS = object<WebhookConsoleOptions>()(
  {
    path: optional(path, 'webhooks/console'),
    capabilities: optional(CAPABILITIES, ['view']),
    actor: optional(func<Actor>('(request) => string'), () => undefined),
    redact: optional(func<Redact>('(payload) => bytes or a string')),
    origins: optional(ORIGINS),
    language: optional(LANGUAGE, 'en'),
    activity: filled(
      object<ConsoleActivityOptions>()({
        keepFor: optional(duration({ min: '1h', max: '3650d' }), 90 * DAY),
      }),
    ),
    allowUnguarded: optional(flag, false),
    brand: filled(BRAND),
    alerts: optional(ALERTS),
    portal: optional(PORTAL),
  },
  {
    across({ path: own, portal }, at) {
      const isBelow = `${portal?.path}/`.toLowerCase().startsWith(`${own}/`.toLowerCase());
      at.require(
        portal?.path === undefined || !isBelow,
        'portal.path',
        `is the path of the console, or below it ("${own}"), so that the console would answer; choose another one`,
      );
    },
  },
);

/** @throws {@link WebhookConfigurationError} with every problem */
export function resolveConsole(given?: WebhookConsoleOptions) {
  const { portal, alerts, ...options } = readOptions(OPTIONS, given, 'WebhookConsoleModule');
  return {
    ...options,
    portal: portal && resolvePortal(portal),
    alerts: alerts && {
      ...alerts,
      url: alerts.url === undefined ? undefined : pageUrl(alerts.url),
    },
  };
}

function resolvePortal({ path: mountedAt, url, secret, ...others }: Read<typeof PORTAL>) {
  return {
    ...others,
    path: mountedAt,
    url: pageUrl(url),
    /** Derived from the secret, one for each purpose. */
    keys: unprinted(
      { link: derivedKey(secret, 'link'), session: derivedKey(secret, 'session') },
      '[keys]',
    ),
  };
}

/** Ends with a slash. */
function pageUrl(url: string): URL {
  return new URL(url.endsWith('/') ? url : `${url}/`);
}

function isOrigins(value: unknown): boolean {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.every(
      (one) => typeof one === 'string' && URL.canParse(one) && new URL(one).origin === one,
    )
  );
}

function isPortalUrl(value: unknown): boolean {
  if (typeof value !== 'string' || !URL.canParse(value)) return false;
  const { protocol, hostname, search, hash, username, password } = new URL(value);
  const isPlain = [search, hash, username, password].every((part) => part === '');
  return isPlain && (protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname)));
}

/** A key of its own for each purpose, so that a link is no session. */
function derivedKey(secret: string, purpose: string): string {
  return createHmac('sha256', secret)
    .update(`nestjs-webhook-token portal ${purpose}`)
    .digest('hex');
}
