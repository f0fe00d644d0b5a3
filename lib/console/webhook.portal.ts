import { Inject, Injectable } from '@nestjs/common';
import { DAY, type Duration, MINUTE, SECOND } from '../clock/duration.js';
import { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { Problems } from '../options/problems.js';
import { invalidOptions, readArgument } from '../options/read-options.js';
import { duration, object, optional, required } from '../options/rules.js';
import { unprinted } from '../options/unprinted.js';
import { identifier, isIdentifier } from '../token/identifier.js';
import { createTokenSigner } from '../token/token-signer.js';
import { createTokenVerifier } from '../token/verifier-options.js';
import type { TokenVerifier } from '../token/token-verifier.js';
import type { PortalCapability } from './console-api.js';
import {
  CONSOLE_OPTIONS,
  DISPLAY_NAME,
  LANGUAGE,
  PORTAL_CAPABILITIES,
  type ResolvedConsole,
  type ResolvedPortal,
} from './console-options.js';

export interface PortalLink {
  /** The only tenant that the partner sees. */
  readonly tenant: string;
  /** What the partner may do; default `['view']`. */
  readonly capabilities?: readonly PortalCapability[] | undefined;
  /** How long the link can be opened; default `'15m'`, at most `'24h'`. */
  readonly expiresIn?: Duration | undefined;
  /** The tenant's name for people, at most 100 characters; default: the tenant. */
  readonly displayName?: string | undefined;
  /** Where the page leads back to: an absolute URL at one of `portal.returnOrigins`, at most 1024 characters as it is percent-encoded. */
  readonly returnUrl?: string | URL | undefined;
  /** Language of the page, as a BCP 47 tag such as `'de'`; default: the one of the module. */
  readonly language?: string | undefined;
}

/** Who a portal session belongs to. */
export interface PortalGrant extends Pick<PortalLink, 'displayName' | 'language'> {
  readonly tenant: string;
  readonly capabilities: readonly PortalCapability[];
  readonly returnUrl?: string | undefined;
  readonly expiresAt: Date;
  /** Of the session. */
  readonly id: string;
}

/** Browsers drop a cookie above 4096 bytes, and the session's holds the URL. */
const MAX_URL = 1_024;

const LINK = object<PortalLink>()(
  {
    tenant: required(identifier(), 'is required'),
    capabilities: optional(PORTAL_CAPABILITIES, ['view']),
    expiresIn: optional(duration({ min: '1s', max: '24h' }), 15 * MINUTE),
    displayName: optional(DISPLAY_NAME),
    returnUrl: optional((value, at, name): string => {
      const given = value instanceof URL ? value.href : value;
      const url = typeof given === 'string' && URL.canParse(given) ? new URL(given).href : '';
      return url !== '' && url.length <= MAX_URL
        ? url
        : (at.add(
            name,
            `must be an absolute URL of at most ${MAX_URL} characters, percent-encoded`,
          ) as never);
    }),
    language: optional(LANGUAGE),
  },
  { exact: true },
);
/** Sessions of a tenant that were ended before they expired, and are remembered until then. */
const MAX_ENDED = 1_000;
const ISSUER = 'urn:nestjs-webhook-token:portal';
const EVENT = 'portal.session';

/** Makes links to the partner portal, with which a partner sees one tenant's deliveries and endpoints. */
@Injectable()
export class WebhookPortal {
  private readonly links: PortalTokens | undefined;
  private readonly sessions: PortalTokens | undefined;
  /** When each ended session expires, by tenant and id. */
  private readonly ended = new Map<string, Map<string, number>>();

  /** @internal */
  constructor(
    @Inject(CONSOLE_OPTIONS) private readonly options: ResolvedConsole,
    private readonly clock: WebhookClock,
  ) {
    const { portal } = options;
    if (portal === undefined) return;
    this.links = unprinted(new PortalTokens(portal.keys.link, clock), '[keys]');
    this.sessions = unprinted(new PortalTokens(portal.keys.session, clock), '[keys]');
  }

  /**
   * Makes a link. It is a credential, and can be opened any number of times until it expires: send it to the partner only, and
   * keep `expiresIn` short.
   *
   * @returns the URL, with a token in its fragment, which browsers do not send to a server
   * @throws {@link WebhookDeliveryError} `invalid_option`
   * @throws {@link WebhookConfigurationError} without the option `portal`
   *
   * @example
   * ```ts
   * const url = portal.link({ tenant: 'acme', capabilities: ['view', 'redeliver'], expiresIn: '10m' });
   * ```
   */
  link(link: PortalLink): URL {
    const { expiresIn, ...grant } = readArgument(LINK, link, 'link');
    const { url: base, returnOrigins } = this.portal;
    const { returnUrl } = grant;
    // The origin of a `blob:` URL is that of the page which made it.
    if (returnUrl !== undefined && !returnOrigins.some((one) => returnUrl.startsWith(`${one}/`))) {
      const allowed = returnOrigins.length === 0 ? 'none is set' : returnOrigins.join(', ');
      throw invalidOptions([
        {
          path: 'link.returnUrl',
          message: `must be at an origin of portal.returnOrigins: ${allowed}`,
        },
      ]);
    }
    const url = new URL(base);
    url.hash = `token=${this.links!.sign(grant, expiresIn)}`;
    return url;
  }

  /**
   * Exchanges the token of a link for that of a session.
   *
   * @hidden
   */
  open(linkToken: string): { readonly token: string; readonly grant: PortalGrant } | undefined {
    const grant = this.links?.verify(linkToken);
    if (grant === undefined) return undefined;
    const token = this.sessions!.sign(grant, this.portal.sessionLifetime);
    const session = this.sessions!.verify(token);
    return session && { token, grant: session };
  }

  /**
   * Reads the token of a session.
   *
   * @hidden
   */
  session(token: string): PortalGrant | undefined {
    const grant = this.sessions?.verify(token);
    return grant === undefined || this.ended.get(grant.tenant)?.has(grant.id) ? undefined : grant;
  }

  /**
   * Ends a session before it expires, in this process.
   *
   * @hidden
   */
  end({ id, tenant, expiresAt }: PortalGrant): void {
    const now = this.clock.now();
    for (const [owner, sessions] of this.ended) {
      for (const [one, expires] of sessions) if (expires <= now) sessions.delete(one);
      if (sessions.size === 0) this.ended.delete(owner);
    }
    const own = this.ended.get(tenant) ?? new Map<string, number>();
    if (own.size >= MAX_ENDED) own.delete(own.keys().next().value!);
    this.ended.set(tenant, own.set(id, expiresAt.getTime()));
  }

  private get portal(): ResolvedPortal {
    const { portal } = this.options;
    if (portal !== undefined) return portal;
    throw new WebhookConfigurationError([
      {
        path: 'WebhookConsoleModule.portal',
        message: 'is not set, so there is no portal to link to; set { url, secret }',
      },
    ]);
  }
}

/** Tokens for one purpose, under a key of their own. */
class PortalTokens {
  private readonly verifier: TokenVerifier;

  constructor(
    private readonly key: string,
    private readonly clock: WebhookClock,
  ) {
    this.verifier = createTokenVerifier({
      issuers: [{ issuer: ISSUER, secret: key }],
      now: () => clock.now(),
      maxTokenLifetime: DAY / SECOND,
    });
  }

  sign(grant: Omit<PortalGrant, 'expiresAt' | 'id'>, lifetimeMs: number): string {
    const { tenant, capabilities, displayName, returnUrl, language } = grant;
    const lifetime = Math.ceil(lifetimeMs / 1_000);
    const now = (): number => this.clock.now();
    const signer = createTokenSigner({ issuer: ISSUER, key: this.key, lifetime, now });
    // HMAC is synchronous.
    const data = { tenant, capabilities, displayName, returnUrl, language };
    return signer.sign({ event: EVENT, data: JSON.parse(JSON.stringify(data)) }) as string;
  }

  verify(token: string): PortalGrant | undefined {
    try {
      const verified = this.verifier.verify(token);
      // A key pair would be asynchronous; the keys of the portal are secrets.
      if (verified instanceof Promise) return undefined;
      const { webhook, exp, jti } = verified.claims;
      // The tolerance of the verifier is for `iat`, which another instance has set.
      if (exp * 1_000 <= this.clock.now()) return undefined;
      const { tenant, capabilities, ...look } = webhook.data as Partial<PortalGrant>;
      if (webhook.event !== EVENT || !isIdentifier(tenant) || !isCapabilities(capabilities)) {
        return undefined;
      }
      return { ...look, tenant, capabilities, expiresAt: new Date(exp * 1_000), id: jti };
    } catch {
      return undefined;
    }
  }
}

/** Whether a verified token holds capabilities of this version. */
function isCapabilities(value: unknown): value is readonly PortalCapability[] {
  const problems = new Problems();
  PORTAL_CAPABILITIES(value, problems, '');
  return problems.all.length === 0;
}
