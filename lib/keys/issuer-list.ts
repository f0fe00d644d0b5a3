import type { ConfigurationProblem } from '../errors/webhook.error.js';
import { eventPatternProblem } from '../token/event-name.js';
import type { KeyRing } from '../token/keys/token-keys.js';
import {
  buildKeyRing,
  type KeyRingOptions,
  type TrustedIssuer,
} from '../token/keys/trusted-issuers.js';
import type { RemoteKeySets } from './remote-key-sets.js';

/** A trusted issuer, its keys and the events that it may send. */
export interface WebhookIssuer extends TrustedIssuer {
  /**
   * The `https:` URL of the issuer's JSON Web Key Set. If the entry has keys too, they are tried first: those without a kid
   * for every token, the others for tokens with their kid or without one.
   */
  readonly jwksUri?: string | undefined;
  /** Patterns of the events that this issuer may send; others are rejected with `403`. Default: every event. */
  readonly events?: readonly string[] | undefined;
  /**
   * Media types that bodies of this issuer may have, such as `['application/json']` or `['text/*']`; others are
   * rejected with `415`, before a declared body is read. JSON and text must then be UTF-8. The token does not sign the
   * Content-Type header.
   * Default: every type.
   */
  readonly contentTypes?: readonly string[] | undefined;
}

/** For an issuer that was removed while its last token was being verified. */
const NO_EVENTS: readonly string[] = [];

/** The trusted issuers: their keys, and the events that each may send. */
export class IssuerList {
  private readonly events = new Map<string, readonly string[]>();
  private readonly contentTypes = new Map<string, readonly string[]>();

  private constructor(
    readonly ring: KeyRing,
    private readonly names: readonly string[],
  ) {}

  /** Parses a list of issuers and collects all problems; their paths begin with `issuers`. */
  static read(
    issuers: readonly WebhookIssuer[],
    options: KeyRingOptions,
    remote: RemoteKeySets,
  ): { list: IssuerList; problems: readonly ConfigurationProblem[] } {
    const sets = remote.startList();
    const { ring, problems } = buildKeyRing(issuers, options, sets.moreKeys);
    const list = new IssuerList(
      ring,
      issuers.map(({ issuer }) => issuer),
    );
    issuers.forEach(({ issuer, events, contentTypes }, index) => {
      if (contentTypes !== undefined) {
        const lowerCase = contentTypes.map((type) => type.toLowerCase());
        list.contentTypes.set(issuer, lowerCase);
      }
      if (events === undefined) return;
      events.forEach((pattern, i) => {
        const message = eventPatternProblem(pattern);
        if (message !== undefined) {
          problems.push({ path: `issuers[${index}].events[${i}]`, message });
        }
      });
      list.events.set(issuer, events);
    });
    if (problems.length === 0) sets.adopt();
    return { list, problems };
  }

  /** @returns patterns of the events that an issuer may send; `undefined` for every event */
  eventsOf(issuer: string): readonly string[] | undefined {
    return this.ring.of(issuer) === undefined ? NO_EVENTS : this.events.get(issuer);
  }

  /** @returns media types that bodies of an issuer may have; `undefined` for every type */
  contentTypesOf(issuer: string): readonly string[] | undefined {
    return this.contentTypes.get(issuer);
  }

  /** Warnings about issuers whose keys have all expired, that share a secret, or that differ only by a slash. */
  notices(now: number): string[] {
    const twins = this.names
      .filter((issuer) => this.ring.of(`${issuer}/`) !== undefined)
      .map(
        (issuer) =>
          `The issuers "${issuer}" and "${issuer}/" differ only by the slash at the end, and are compared exactly: remove the one that the sender does not use`,
      );
    const ended = this.ring
      .ended(now)
      .map(
        (issuer) =>
          `Every key of the issuer "${issuer}" is past its notAfter, so its tokens are refused: add a key, or remove the issuer`,
      );
    const sharing = this.ring.sharingSecrets().map(([one, other, ...more]) => {
      const others = more.length === 0 ? '' : ` (and ${more.length} more)`;
      return `The issuers "${one}" and "${other}"${others} have the same secret, so each can sign in the name of the others: give each its own`;
    });
    return [...twins, ...ended, ...sharing];
  }
}
