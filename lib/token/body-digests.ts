import { createDigest, type WebhookDigest } from './payload-hash.js';
import type { PayloadRule } from './payload-rule.interface.js';
import type { HashAlgorithm } from './webhook-token.constants.js';

/** The digests a rule asks for, taken in one pass: one an algorithm, and none where none is asked for. */
export class BodyDigests {
  private readonly running = new Map<HashAlgorithm, WebhookDigest>();
  private readonly wanted: readonly HashAlgorithm[];

  constructor(rule: PayloadRule) {
    this.wanted = rule.kind === 'digest' ? rule.hashes.map(({ algorithm }) => algorithm) : [];
    for (const algorithm of this.wanted) {
      if (!this.running.has(algorithm)) this.running.set(algorithm, createDigest(algorithm));
    }
  }

  /** Takes the next piece of the body in. */
  update(chunk: Uint8Array): this {
    for (const digest of this.running.values()) digest.update(chunk);
    return this;
  }

  /** Ends the computation: `<algorithm>:<hex>`, one for each hash of the rule. */
  digests(): readonly string[] {
    const computed = new Map<HashAlgorithm, string>();
    for (const [algorithm, digest] of this.running) computed.set(algorithm, digest.digest());
    return this.wanted.map((algorithm) => computed.get(algorithm)!);
  }
}
