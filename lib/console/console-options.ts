import { createHmac } from 'node:crypto';
import type { CanActivate, DynamicModule, ForwardReference, Type } from '@nestjs/common';
import { type Duration, parseDuration } from '../clock/duration.js';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { ConfigurationFaults } from '../options/configuration-faults.js';
import { checkShape, isOptions, type OptionShape } from '../options/option-shape.js';
import type { ConsoleBrand, ConsoleCapability } from './console-api.js';

/** A payload before it is shown. */
export interface ShownPayload {
  readonly contentType: string;
  readonly bytes: Uint8Array;
  /** The event's name. */
  readonly event: string;
  readonly source: 'delivery' | 'inbox';
  readonly tenant?: string;
}

/** The portal: the console for one tenant. */
export interface WebhookPortalOptions {
  /** Where partners reach the portal, as they see it: `https://shop.example/webhooks/portal`. */
  readonly url: string;
  /** Signs links and sessions: at least 32 bytes, used for nothing else. A new one ends all sessions. */
  readonly secret: string;
  /** Where it is mounted; default `webhooks/portal`, under the application's global prefix and version. */
  readonly path?: string | undefined;
  /** How long a session lasts after a link was opened; default `'1h'`, at most `'24h'`. */
  readonly sessionLifetime?: Duration | undefined;
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
   * Changes a payload before it is shown. If it throws, or returns `undefined`, the payload is not shown.
   */
  readonly redact?: ((payload: ShownPayload) => Uint8Array | string | undefined) | undefined;
  /** Start without a guard in production, because something else protects the path; default `false`. */
  readonly allowUnguarded?: boolean | undefined;
  /** Name, colour and logo. */
  readonly brand?: Partial<ConsoleBrand> | undefined;
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

/** The options, checked and filled. */
export interface ResolvedConsole {
  readonly path: string;
  readonly capabilities: readonly ConsoleCapability[];
  readonly actor: (request: never) => string | undefined;
  readonly redact: WebhookConsoleOptions['redact'];
  readonly allowUnguarded: boolean;
  readonly brand: ConsoleBrand;
  readonly portal: ResolvedPortal | undefined;
}

/** The options of the portal, checked and filled. */
export interface ResolvedPortal {
  readonly path: string;
  /** Ends with a slash. */
  readonly url: URL;
  /** Keys derived from the secret, one for each purpose. */
  readonly linkKey: string;
  readonly sessionKey: string;
  /** Milliseconds. */
  readonly sessionLifetime: number;
}

/** Injection token of the {@link ResolvedConsole}. */
export const CONSOLE_OPTIONS = Symbol('options of WebhookConsoleModule');

/** Every capability. */
export const CAPABILITIES: readonly ConsoleCapability[] = [
  'view',
  'view-payload',
  'redeliver',
  'manage-endpoints',
  'manage-secrets',
];

const DEFAULT_PATH = 'webhooks/console';
const DEFAULT_PORTAL_PATH = 'webhooks/portal';
const DEFAULT_SESSION = 3_600_000;
const MAX_SESSION = 86_400_000;
const MIN_SECRET_BYTES = 32;

const PATH = /^[\w.~-]+(?:\/[\w.~-]+)*$/;
const COLOR = /^#(?:[\da-f]{3}|[\da-f]{6})$/i;
const LOGO =
  /^(?:https:\/\/[^\s;,'"]+|data:image\/(?:png|jpeg|gif|webp|svg\+xml)[;,][^\s'"]+|[\w./~-]+)$/i;
const MAX_LOGO = 65_536;

const isFunction = (value: unknown): boolean => typeof value === 'function';

const OPTIONS: OptionShape<WebhookConsoleOptions> = {
  path: undefined,
  capabilities: {
    holds: isCapabilities,
    message: `must be a list of ${CAPABILITIES.join(', ')}`,
  },
  actor: { holds: isFunction, message: 'must be a function: (request) => string' },
  redact: { holds: isFunction, message: 'must be a function: (payload) => bytes or a string' },
  allowUnguarded: {
    holds: (value) => typeof value === 'boolean',
    message: 'must be a boolean',
  },
  brand: { holds: isOptions, message: 'must be an object: { name, color, logo }' },
  portal: {
    holds: isOptions,
    message: 'must be an object: { url, secret, path, sessionLifetime }',
  },
};

const BRAND: OptionShape<Partial<ConsoleBrand>> = {
  name: {
    holds: (value) => typeof value === 'string' && value.length >= 1 && value.length <= 100,
    message: 'must be a string of 1 to 100 characters',
  },
  color: {
    holds: (value) => typeof value === 'string' && COLOR.test(value),
    message: "must be a hexadecimal colour, such as '#0a66c2'",
  },
  logo: {
    holds: (value) => typeof value === 'string' && value.length <= MAX_LOGO && LOGO.test(value),
    message: 'must be an https URL, a path, or a data:image URL of at most 64 KiB',
  },
};

const PORTAL: OptionShape<WebhookPortalOptions> = {
  url: {
    holds: isPortalUrl,
    message:
      'must be the absolute URL of the portal, without query and fragment, such as "https://shop.example/webhooks/portal"; http: is allowed for localhost',
  },
  secret: {
    holds: (value) => typeof value === 'string' && Buffer.byteLength(value) >= MIN_SECRET_BYTES,
    message: 'must be a string of at least 32 bytes that is used for nothing else',
  },
  path: undefined,
  sessionLifetime: undefined,
};

/** @throws {@link WebhookConfigurationError} with every fault */
export function resolveConsole(given: WebhookConsoleOptions): ResolvedConsole {
  const faults = new ConfigurationFaults('WebhookConsoleModule');
  const options = checkShape<WebhookConsoleOptions>(given, OPTIONS, faults);
  const brand = checkShape<Partial<ConsoleBrand>>(
    options.brand ?? {},
    BRAND,
    faults.below('brand'),
  );
  const path = readPath(options.path, DEFAULT_PATH, faults);
  const portal = options.portal && resolvePortal(options.portal, faults.below('portal'));
  faults.require(
    portal === undefined || !`${portal.path}/`.toLowerCase().startsWith(`${path}/`.toLowerCase()),
    'portal.path',
    `is the path of the console, or below it ("${path}"), so that the console would answer; choose another one`,
  );
  if (faults.all.length > 0) throw new WebhookConfigurationError(faults.all);
  return {
    path,
    capabilities: options.capabilities ?? ['view'],
    actor: options.actor ?? (() => undefined),
    redact: options.redact,
    allowUnguarded: options.allowUnguarded ?? false,
    brand: { name: 'Webhooks', ...brand },
    portal,
  };
}

function resolvePortal(
  given: WebhookPortalOptions,
  faults: ConfigurationFaults,
): ResolvedPortal | undefined {
  const { url, secret, path, sessionLifetime } = checkShape<WebhookPortalOptions>(
    given,
    PORTAL,
    faults,
  );
  // What is present and wrong is reported by its rule.
  faults.require(given.url !== undefined, 'url', PORTAL.url!.message);
  faults.require(given.secret !== undefined, 'secret', PORTAL.secret!.message);
  const lifetime =
    sessionLifetime === undefined ? DEFAULT_SESSION : (parseDuration(sessionLifetime) ?? 0);
  faults.require(
    lifetime >= 60_000 && lifetime <= MAX_SESSION,
    'sessionLifetime',
    "must be a duration from '1m' to '24h'",
  );
  const mountedAt = readPath(path, DEFAULT_PORTAL_PATH, faults);
  if (url === undefined || secret === undefined) return undefined;
  return {
    path: mountedAt,
    url: new URL(url.endsWith('/') ? url : `${url}/`),
    linkKey: derivedKey(secret, 'link'),
    sessionKey: derivedKey(secret, 'session'),
    sessionLifetime: lifetime,
  };
}

export function isCapabilities(value: unknown): value is readonly ConsoleCapability[] {
  return Array.isArray(value) && value.every((one) => (CAPABILITIES as unknown[]).includes(one));
}

function isPortalUrl(value: unknown): boolean {
  if (typeof value !== 'string' || !URL.canParse(value)) return false;
  const { protocol, hostname, search, hash, username, password } = new URL(value);
  const isLocal = /^(localhost|127\.0\.0\.1|\[::1\])$/.test(hostname);
  const isPlain = [search, hash, username, password].every((part) => part === '');
  return isPlain && (protocol === 'https:' || (protocol === 'http:' && isLocal));
}

function readPath(path: string | undefined, fallback: string, faults: ConfigurationFaults): string {
  const plain = path === undefined ? fallback : path.replace(/^\/+|\/+$/g, '');
  faults.require(
    PATH.test(plain),
    'path',
    'must be plain segments, such as "webhooks/console"; the application\'s global prefix is added',
  );
  return plain;
}

/** A key of its own for each purpose, so that a link is no session. */
function derivedKey(secret: string, purpose: string): string {
  return createHmac('sha256', secret)
    .update(`nestjs-webhook-token portal ${purpose}`)
    .digest('hex');
}
