import type { ConfigurationProblem } from '../errors/webhook.error.js';
import { eventPatternFault } from '../token/event-name.js';
import { KeyRing, type KeyRingOptions } from '../token/keys/key-ring.js';
import type { RemoteKeySets } from './remote-key-sets.js';
import type { WebhookIssuer } from './webhook-issuer.js';

/** For an issuer that was removed while its last token was being verified. */
const NO_EVENTS: readonly string[] = [];

/** The trusted issuers: their keys, and the events that each may send. */
export class IssuerList {
  private readonly events = new Map<string, readonly string[]>();
  private readonly contentTypes = new Map<string, readonly string[]>();

  private constructor(readonly ring: KeyRing) {}

  /** Parses a list of issuers and collects all faults; their paths begin with `issuers`. */
  static read(
    issuers: readonly WebhookIssuer[],
    options: KeyRingOptions,
    remote: RemoteKeySets,
  ): { list: IssuerList; faults: readonly ConfigurationProblem[] } {
    const sets = remote.startList();
    const { ring, faults } = KeyRing.build(issuers, options, sets.moreKeys);
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

  /** @returns patterns of the events that an issuer may send; `undefined` for every event */
  eventsOf(issuer: string): readonly string[] | undefined {
    return this.ring.of(issuer) === undefined ? NO_EVENTS : this.events.get(issuer);
  }

  /** @returns media types that bodies of an issuer may have; `undefined` for every type */
  contentTypesOf(issuer: string): readonly string[] | undefined {
    return this.contentTypes.get(issuer);
  }

  /** Warnings about issuers whose keys have all expired. */
  notices(now: number): string[] {
    return this.ring
      .ended(now)
      .map(
        (issuer) =>
          `Every key of the issuer "${issuer}" is past its notAfter, so its tokens are refused: add a key, or remove the issuer`,
      );
  }
}
