import {
  createTokenSigner,
  digest,
  type WebhookKey,
  type WebhookTokenInput,
} from 'nestjs-webhook-token/token';
import { TestClock } from 'nestjs-webhook-token/testing';
import type { WebhookReceiverOptions } from 'nestjs-webhook-token';
import type { WebhookExplanation } from '../../lib/explain/webhook-explanation.interface.js';
import { type TestVerifier, verifierFor } from '../fixtures/verifier-for.js';

export const ISSUER = 'https://shop.example';
export const SECRET = 'explained-secret-of-thirty-two-bytes';
/** Part of every payload; no explanation may contain it. */
export const MARKER = 'CUSTOMER-4711';
/** Milliseconds. */
export const NOW = Date.UTC(2026, 0, 1);

/** A verifier at a fixed time. */
export function verifierOf(options: Partial<WebhookReceiverOptions> = {}): TestVerifier {
  const issuers = [{ issuer: ISSUER, secret: SECRET }];
  return verifierFor({ issuers, ...options }, new TestClock(NOW));
}

interface Signing {
  readonly issuer?: string;
  readonly key?: WebhookKey | WebhookKey['key'];
  /** Milliseconds by which the sender's clock is ahead. */
  readonly ahead?: number;
  readonly lifetime?: number;
}

/** A token of the trusted issuer, unless another is set. */
export function tokenOf(input: Partial<WebhookTokenInput> = {}, signing: Signing = {}): string {
  const { issuer = ISSUER, key = SECRET, ahead = 0, lifetime } = signing;
  return createTokenSigner({
    issuer,
    key,
    lifetime,
    allowWeakSecrets: true,
    now: () => NOW + ahead,
  }).sign({ event: 'order.created', ...input }) as string;
}

/** The digest of the body that the sender signs. */
export function hashOf(body: string | Buffer): string {
  return digest('sha256', Buffer.from(body as string));
}

/** The hints of an explanation, by code. */
export function hintsOf({ hints }: WebhookExplanation): Record<string, string> {
  return Object.fromEntries(hints.map(({ code, detail }) => [code, detail]));
}
