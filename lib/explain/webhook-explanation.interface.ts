import type { WebhookReceipt } from '../token/webhook-receipt.js';

/** The checks of a token, in the order of an explanation. */
export const EXPLANATION_STEPS = [
  'authorization',
  'token-form',
  'header',
  'issuer',
  'key',
  'signature',
  'claims',
  'times',
  'audience',
  'event',
  'method',
  'body-length',
  'body-digest',
  'payload',
  'definition',
  'replay',
] as const;

export type ExplanationStepName = (typeof EXPLANATION_STEPS)[number];

/** Codes of hints. Stable; a new version may add some. */
export const EXPLANATION_HINTS = [
  'authorization_missing',
  'authorization_moved',
  'authorization_repeated',
  'scheme_missing',
  'scheme_doubled',
  'scheme_other',
  'token_quoted',
  'token_url_encoded',
  'token_split',
  'token_padded',
  'token_base64',
  'issuer_unknown',
  'issuer_nearly',
  'kid_unknown',
  'key_out_of_window',
  'algorithm_mismatch',
  'secret_form',
  'other_key',
  'other_issuer',
  'token_age',
  'expired',
  'clock_behind',
  'clock_ahead',
  'milliseconds',
  'lifetime',
  'audience',
  'events_allowed',
  'hash_on_head',
  'body_unauthenticated',
  'body_length',
  'body_size',
  'body_digest',
  'body_dropped',
  'body_added',
  'body_reserialized',
  'body_newline',
  'body_line_endings',
  'body_bom',
  'body_charset',
  'body_compressed',
  'digest_algorithm',
  'digest_encoding',
  'signature_missing',
  'signature_age',
  'signature_encoding',
  'signature_algorithm',
  'signed_content',
  'other_receiver',
] as const;

export type ExplanationHintCode = (typeof EXPLANATION_HINTS)[number];

export type AddHint = (code: ExplanationHintCode, detail: string) => void;

/**
 * Why a request is accepted or refused: plain JSON for operators. It holds no secret, token or payload, but must not be
 * shown to senders: it tells an attacker how close a forged request came.
 */
export interface WebhookExplanation {
  readonly verdict: 'accepted' | 'refused';
  /** The code of the refusal, as `verify` throws it and the sender gets it. */
  readonly code?: string;
  /** The status that the sender gets. */
  readonly status?: number;
  /** Every step in its order; of a sender, those that it has. Exactly one has failed if the verdict is `refused`. */
  readonly steps: readonly {
    readonly step: ExplanationStepName;
    /** `skipped`: not reached, or nothing to check. */
    readonly outcome: 'passed' | 'failed' | 'skipped';
    /** The code of the refusal; only for the step that failed. */
    readonly code?: string;
    readonly detail: string;
  }[];
  /** Observations that help to find the cause. */
  readonly hints: readonly { readonly code: ExplanationHintCode; readonly detail: string }[];
  /** For comparison with the sender's. A refused token may lack any field; absent if no token can be read. */
  readonly receipt?: Partial<WebhookReceipt> &
    Pick<WebhookReceipt, 'method' | 'bodyBytes' | 'tokenSha256'> & {
      /** Whether the signature is valid. If not, the rest is unauthenticated. */
      readonly authenticated: boolean;
    };
}

export type ExplanationStep = WebhookExplanation['steps'][number];

/** An observation that helps to find the cause. */
export type ExplanationHint = WebhookExplanation['hints'][number];
