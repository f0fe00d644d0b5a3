import type { Readable } from 'node:stream';
import type { KeySetStatus } from '../keys/remote-key-sets.js';
import type { TokenVerifier } from '../token/token-verifier.js';
import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';
import type { ReceivedProfile } from '../token/webhook-token.constants.js';
import type { RequestBody } from './body.js';
import type { BodySpool } from './body-spool.js';

/** Access to headers that also shows repeated ones, which Node's `headers` hides. */
export interface RequestHeaders {
  /** The first value. */
  get(name: string): string | undefined;
  /** Every value, in order of arrival. */
  all(name: string): readonly string[];
}

/** The source of the body's exact bytes. */
export type BodySource =
  | { readonly kind: 'stream'; readonly stream: Readable }
  | { readonly kind: 'bytes'; readonly bytes: Uint8Array }
  /** Something else has read the stream and kept nothing; `remedy` is for the developer of the application. */
  | { readonly kind: 'consumed'; readonly remedy?: string };

/** A request before verification, independent of the HTTP adapter. */
export interface IncomingWebhook {
  readonly method: string;
  /** The request target: path and query. Absent if the request did not arrive by HTTP. */
  readonly target?: string | undefined;
  readonly headers: RequestHeaders;
  readonly body: BodySource;
}

/** What an issuer may send. */
export interface IssuerRules {
  /** @returns event patterns; `undefined` for every event */
  eventsOf(issuer: string): readonly string[] | undefined;
  /** @returns media types of bodies; `undefined` for every type */
  contentTypesOf(issuer: string): readonly string[] | undefined;
}

/** The rules of a receiver that a scheme checks; they need neither Nest nor a store. */
export interface RequestRules {
  readonly tokens: TokenVerifier;
  /** What each issuer may send; without it, every issuer may send everything. */
  readonly issuers?: IssuerRules | undefined;
  readonly requireHash: boolean;
  readonly maxBodyBytes: number;
  /** Members of a JSON body, at all levels. */
  readonly maxJsonMembers: number;
  /** Stores large bodies; without it they stay in memory. The caller of {@link WebhookScheme.verify} removes the body. */
  readonly spool?: BodySpool | undefined;
}

/** What a scheme reads from a request whose signature and body it has verified: the event, its id, time and data. */
export interface VerifiedRequest {
  readonly method: 'HEAD' | 'POST';
  readonly claims: WebhookTokenClaims;
  /** The wire format of a token, or the name of the sender's scheme. */
  readonly profile: ReceivedProfile;
  /** The sender's attempt number, from 1; `undefined` if the request does not say it. */
  readonly attempt: number | undefined;
  /** `undefined` also if the data is a body in a file, which is read on demand. */
  readonly data: unknown;
  /** Removed by the caller, also if the event is refused later. */
  readonly body: RequestBody;
  /** Whether the data is a body in a file. */
  readonly isSpooled: boolean;
  /** Identifies the content, usually as the body's digest, `<algorithm>:<hex>`; without it, the value of `data` does. */
  readonly digest?: string | undefined;
  /** Whether the signature covers the body; `true` without a body. */
  readonly bodyVerified: boolean;
  /** Of the data; `undefined` without data. */
  readonly contentType: string | undefined;
}

/** What a request says of itself, in the form that it must have. */
export interface ClaimedEvent {
  readonly event?: string | undefined;
  readonly id?: string | undefined;
  readonly issuer?: string | undefined;
  readonly kid?: string | undefined;
  /** ISO 8601. */
  readonly issuedAt?: string | undefined;
  readonly expiresAt?: string | undefined;
}

/** The items of one request. Each is reserved, handled and recorded by itself; one that is no event has an error. */
export interface VerifiedBatch {
  readonly batch: readonly (VerifiedRequest | { readonly error: unknown })[];
}

/** A request by which a sender checks the receiver. It holds no event. */
export interface SenderChallenge {
  /** The JSON that the sender expects, with status 200. */
  readonly challengeAnswer?: Readonly<Record<string, unknown>> | undefined;
  /** The plain text that the sender expects, with status 200. */
  readonly challengeText?: string | undefined;
  /** The headers that the sender expects. */
  readonly challengeHeaders?: Readonly<Record<string, string>> | undefined;
}

/** An answer to a sender, as far as its form may be the sender's own. */
export interface SenderAnswer {
  readonly status: number;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** JSON. */
  readonly body?: Readonly<Record<string, string>> | undefined;
}

/** The events of a sender that waits to be asked for them. */
export interface EventPoll {
  /** Where they are, for logs. */
  readonly url: string;
  /** Milliseconds from one request to the next if the first found no event. */
  readonly interval: number;
  /** Milliseconds that a request may take. */
  readonly timeout: number;

  /**
   * Reports settled events, and asks for more. An event for which {@link WebhookScheme.answer} has no answer stays with the sender, which
   * returns it again.
   *
   * @param settled - answers by the id that the sender gave the event
   * @param options.last - only reports
   * @throws an error whose message may be logged; it may have `retryAfter`, the header of the answer, and a cause
   */
  fetch(
    settled: ReadonlyMap<string, SenderAnswer>,
    options: { readonly signal: AbortSignal; readonly last?: boolean },
  ): Promise<FetchedEvents>;
}

/** By id. */
export type FetchedEvents = ReadonlyMap<string, IncomingWebhook>;

/** An answer of the answer table. */
export interface AnswerFacts {
  readonly status: number;
  /** `undefined` on success. */
  readonly code: string | undefined;
  readonly detail: string | undefined;
}

/** What an explanation can try of a refused request. Nothing in it is verified. */
export interface SenderDiagnosis {
  /** The headers that have the credentials, in lower case. */
  readonly headers: readonly string[];
  /** The signed time as the request has it, in seconds. */
  readonly timestamp?: number | undefined;
  /** Seconds by which a time may differ. */
  readonly tolerance: number;
  /** Whether the signature, or the digest in the token, would hold for this body. */
  holdsFor?(body: Buffer): boolean;
  /** Whether it would with other secrets, made from the known ones. */
  holdsWith?(change: (secret: Buffer) => Buffer | undefined, body: Buffer): boolean;
  /** Other ways to sign. */
  readonly variants?: readonly SignatureVariant[] | undefined;
  /** A JSON Web Token, and what it is checked against. */
  readonly token?: TokenDiagnosis | undefined;
}

export interface SignatureVariant {
  readonly code: 'signature_encoding' | 'signature_algorithm' | 'signed_content';
  /** Completes "the signature is valid if …". */
  readonly premise: string;
  holdsFor(body: Buffer): boolean;
}

/** The parts of a JSON Web Token of a sender. */
export interface TokenDiagnosis {
  readonly header: Readonly<Record<string, unknown>> | undefined;
  readonly claims: Readonly<Record<string, unknown>> | undefined;
  readonly issuers: readonly string[] | undefined;
  readonly audience: readonly string[];
}

/** Who signs requests, and how: the part of receiving that differs from sender to sender. */
export interface WebhookScheme {
  /** The name of the sender, or of the wire format. */
  readonly name: string;

  /** Whether its ids are those of tokens: the sender may sign one event both ways. */
  readonly sharesIds?: boolean | undefined;

  /** The issuer whose tokens are of the same sender, so that its events have one identity, whichever signature was verified. */
  readonly partner?: string | undefined;

  /** The scheme that decides about requests with credentials of it whose token does not hold. */
  readonly fallback?: WebhookScheme | undefined;

  /** Headers that have the credentials, in lower case: the inbox never records them. It may grow with each request. */
  readonly credentialHeaders?: Iterable<string> | undefined;

  /** Whether a request has credentials of this scheme, valid or not. */
  hasCredentials(headers: RequestHeaders): boolean;

  /**
   * Verifies a request. A scheme whose credentials do not cover the body checks them before it reads the body, so that a sender
   * without a key cannot make the receiver read one.
   *
   * @throws {@link WebhookTokenError}, {@link WebhookSignatureError}, {@link WebhookPayloadError}
   */
  verify(
    incoming: IncomingWebhook,
    rules: RequestRules,
  ): Promise<VerifiedRequest | VerifiedBatch | SenderChallenge>;

  /** Methods besides HEAD and POST by which the sender checks the receiver; default none. */
  readonly challengeMethods?: readonly string[] | undefined;

  /**
   * The form of an answer that the sender's standard names.
   *
   * @param incoming - as for {@link verify}
   * @returns `undefined` for the receiver's own form
   */
  answer?(given: AnswerFacts, incoming: IncomingWebhook): SenderAnswer | undefined;

  /** How events are fetched that the sender does not push. */
  readonly poll?: EventPoll | undefined;

  /**
   * Whether a refused request was signed by a trusted sender.
   *
   * @param error - what {@link verify} or the replay store threw
   */
  isAuthenticated(error: unknown): boolean;

  /**
   * Takes a refused request apart, for an explanation.
   *
   * @param body - absent if it could not be read
   */
  diagnose?(headers: RequestHeaders, body: Buffer | undefined): SenderDiagnosis;

  /** Checks the key sets of the sender that are fetched; one that fails is fetched again in the background. */
  checkKeySets?(): readonly KeySetStatus[];

  /** Reads what a refused request claims, for logs: it is not verified. Never throws. */
  claims(incoming: IncomingWebhook): ClaimedEvent;
}
