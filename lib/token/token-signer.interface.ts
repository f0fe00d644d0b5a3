import type { KeyPolicy } from './keys/key-material.js';
import type { SigningKeyInput } from './keys/signing-key.js';
import type { TokenClock } from './token-clock.js';
import type { MaybePromise } from './maybe-promise.js';
import type { SignatureAlgorithm, WebhookProfile } from './webhook-token.constants.js';

/** Who signs, and with what. */
export interface TokenSignerOptions extends KeyPolicy {
  /** The `iss` of the tokens; 1 to 255 characters. */
  readonly issuer: string;
  /** A shared secret (HS256), a key with its algorithm, or a {@link WebhookSigner} that holds one elsewhere. */
  readonly key: SigningKeyInput;
  /** Seconds from `iat` to `exp`; default 300. Receivers refuse more than 3600 unless they are told otherwise. */
  readonly lifetime?: number | undefined;
  /** The wire format of its tokens, unless one is named for a token; default `'webhook-token'`. */
  readonly profile?: WebhookProfile | undefined;
  /** Where the time comes from; default `Date.now`. */
  readonly now?: TokenClock | undefined;
}

/** What a token announces. */
export interface WebhookTokenInput {
  /** Dotted name, `<entity>.<action>`. */
  readonly event: string;
  /** Inline data: an object whose JSON is an object, nested at most 64 levels. */
  readonly data?: object | undefined;
  /** Digest of the body, `<algorithm>:<hex>`, as `digest` gives it for any wire format. */
  readonly hash?: string | undefined;
  /** Bytes of the body; needed with a hash by `swt-draft-00`, and sent by it alone. */
  readonly size?: number | undefined;
  /** Attempts made before this one; sent by `swt-draft-02` alone. */
  readonly retryCount?: number | undefined;
  /** The wire format of this token; default the signer's. */
  readonly profile?: WebhookProfile | undefined;
  /** Who the token is meant for; each name 1 to 255 characters. */
  readonly audience?: string | readonly string[] | undefined;
  readonly subject?: string | undefined;
  /** The token's own id (`jti`); default a random UUID. One id, one token: never reuse it. */
  readonly id?: string | undefined;
  /** The event's id, the same over all attempts to deliver it. */
  readonly txn?: string | undefined;
}

/** Signs tokens with one key. */
export interface TokenSigner {
  readonly alg: SignatureAlgorithm;
  readonly kid?: string | undefined;
  /** Bytes of inline data that are worth signing: set for a {@link WebhookSigner}, which is not at hand. */
  readonly inlineLimit?: number | undefined;
  /**
   * Signs a fresh token: `iat` and `nbf` now, `exp` a lifetime later.
   *
   * @returns at once for HMAC keys, a promise for key pairs
   * @throws {@link WebhookTokenError} `invalid_claim` for input no receiver would accept, `invalid_token` for a
   *   wire format that has no such algorithm as the key's, `token_too_large`
   * @throws {@link WebhookPayloadError} `hash_unsupported` for a hash of another form
   * @throws {@link WebhookSigningError} `no_signing_key` outside the key's window, `signing_failed`
   */
  sign(input: WebhookTokenInput): MaybePromise<string>;
}
