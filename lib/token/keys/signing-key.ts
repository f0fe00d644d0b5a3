import { parseKeyWindow, type KeyWindow, type ParsedKeyWindow } from './key-window.js';
import { parseKey, type KeyInput, type KeyPolicy } from './key-material.js';
import { SignerKey } from './signer-key.js';
import type { SigningKey } from './token-key.js';
import { isWebhookSigner, type WebhookSigner } from '../webhook-signer.js';

/** What tokens are signed with: a key of this process, or a signer that holds one elsewhere. */
export type SigningKeyInput = KeyInput | WebhookSigner;

/** The key with its window (none: it may always be signed with), or what is wrong with it. */
export type ParsedSigningKey =
  | { readonly key: SigningKey; readonly window: KeyWindow | undefined; readonly fault?: undefined }
  | { readonly key?: undefined; readonly window?: undefined; readonly fault: string };

/** Parses a key, or takes a signer for one, and says what is wrong with it without quoting it. */
export function parseSigningKey(input: SigningKeyInput, policy?: KeyPolicy): ParsedSigningKey {
  const { key, fault } = isWebhookSigner(input)
    ? SignerKey.of(input)
    : parseKey(input, 'sign', policy);
  if (key === undefined) return { fault };
  const { window, fault: windowFault } = signingWindow(input);
  return windowFault === undefined ? { key, window } : { fault: windowFault };
}

/** The window alone. Key material by itself has none, even if a JWK has members of these names. */
export function signingWindow(input: SigningKeyInput): ParsedKeyWindow {
  const isOwner =
    isWebhookSigner(input) || (typeof input === 'object' && input !== null && 'key' in input);
  return isOwner ? parseKeyWindow(input as WebhookSigner) : { window: undefined };
}
