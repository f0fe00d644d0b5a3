import type { ConfigurationFault } from '../errors/webhook.error.js';
import { eventPatternFault } from '../token/event-name.js';
import { KeyRing, type KeyRingOptions } from '../token/keys/key-ring.js';
import type { RemoteKeySets } from './remote-key-sets.js';
import type { WebhookIssuer } from './webhook-issuer.interface.js';

/** What none may send: an issuer that has been dropped while its last token was being verified. */
const NO_EVENTS: readonly string[] = [];

/** A list of issuers that was read: their keys, and the events they may send. */
export class IssuerList {
  private readonly events = new Map<string, readonly string[]>();
  private readonly contentTypes = new Map<string, readonly string[]>();

  private constructor(readonly ring: KeyRing) {}

  /** Reads a list, and says everything that is wrong with it, with paths that begin with `issuers`. */
  static read(
    issuers: readonly WebhookIssuer[],
    options: KeyRingOptions,
    remote: RemoteKeySets,
  ): { list: IssuerList; faults: readonly ConfigurationFault[] } {
    const sets = remote.begin();
    const { ring, faults } = KeyRing.build(issuers, options, sets.more);
    const list = new IssuerList(ring);
    issuers.forEach(({ issuer, events, contentTypes }, index) => {
      if (contentTypes !== undefined) {
        list.contentTypes.set(
          issuer,
          contentTypes.map((type) => type.toLowerCase()),
        );
      }
      if (events === undefined) return;
      events.forEach((pattern, i) => {
        const message = eventPatternFault(pattern);
        if (message !== undefined) {
          faults.push({ path: `issuers[${index}].events[${i}]`, message });
        }
      });
      list.events.set(issuer, events);
    });
    if (faults.length === 0) sets.adopt();
    return { list, faults };
  }

  /** @returns the patterns of an issuer's events; `undefined` for an issuer that may send every event */
  eventsOf(issuer: string): readonly string[] | undefined {
    return this.ring.of(issuer) === undefined ? NO_EVENTS : this.events.get(issuer);
  }

  /** @returns the media types of an issuer's bodies; `undefined` for an issuer that may send every type */
  contentTypesOf(issuer: string): readonly string[] | undefined {
    return this.contentTypes.get(issuer);
  }

  /** What an operator should know of issuers whose keys have all ended. */
  notices(now: number): string[] {
    return this.ring
      .ended(now)
      .map(
        (issuer) =>
          `Every key of the issuer "${issuer}" is past its notAfter, so its tokens are refused: add a key, or remove the issuer`,
      );
  }
}
