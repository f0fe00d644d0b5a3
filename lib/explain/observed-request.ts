import type { Readable } from 'node:stream';
import { readBearerToken } from '../request/open-request.js';
import type { BodySource, IncomingWebhook, RequestRules } from '../request/webhook-scheme.js';
import { ByteChunks } from '../token/payload.js';
import type { IssuerKeys, TrustedIssuers, VerificationKey } from '../token/keys/token-keys.js';
import { readTokenAnatomy, type TokenAnatomy } from '../token/webhook-receipt.js';
import { readSeconds } from '../token/validate-claims.js';
import { repairHeader, type RepairedHeader } from './header-repairs.js';

/** What a request shows before it is verified. Nothing in it is authenticated. */
export interface ObservedRequest {
  /** The request, with its body in memory if it could be read. */
  readonly incoming: IncomingWebhook;
  /** Absent if the body could not be read to its end. */
  readonly body: Buffer | undefined;
  /** Absent if the Authorization header has no token that a receiver accepts. */
  readonly token: string | undefined;
  /** The token as it may have been before a client or proxy changed the header. */
  readonly repaired: RepairedHeader | undefined;
  /** The parts of the token, or of the repaired one. */
  readonly anatomy: TokenAnatomy;
  readonly rules: RequestRules;
  readonly trusted: TrustedIssuers | undefined;
  /** The issuer that the token names, if it is trusted. */
  readonly issuer: IssuerKeys | undefined;
  /** The keys that the receiver tries. */
  readonly candidates: readonly VerificationKey[];
  /** The receiver's clock in seconds. */
  readonly now: number;
}

/** Collects what a request shows. Reads the body; reserves nothing and calls no handler. */
export async function observe(
  request: IncomingWebhook,
  rules: RequestRules,
): Promise<ObservedRequest> {
  const { source, body } = await takeBody(request.body, rules.maxBodyBytes);
  const token = tokenOf(request);
  const repaired = repairHeader(request.headers);
  const anatomy = readTokenAnatomy(token ?? repaired?.token ?? '');
  const now = readSeconds(rules.tokens.settings.now);
  // If the key source fails, verification reports it.
  const trusted = await attempt(async () => rules.tokens.settings.keys.ring());
  const iss = anatomy.claims?.['iss'];
  const issuer = typeof iss === 'string' ? trusted?.of(iss) : undefined;
  const { kid, alg } = (anatomy.headerProblem === undefined && anatomy.header) || {};
  const candidates = await attempt(async () =>
    (issuer ?? trusted?.sole)?.candidates(
      kid as string | undefined,
      now,
      alg as string | undefined,
    ),
  );
  return {
    incoming: { ...request, body: source },
    body,
    token,
    repaired,
    anatomy,
    rules,
    trusted,
    issuer,
    candidates: candidates ?? [],
    now,
  };
}

export async function attempt<T>(run: () => Promise<T>): Promise<T | undefined> {
  try {
    return await run();
  } catch {
    return undefined;
  }
}

function tokenOf({ headers }: IncomingWebhook): string | undefined {
  try {
    return readBearerToken(headers);
  } catch {
    return undefined;
  }
}

/** Reads a body into memory, up to a limit; it is absent if it cannot be read. */
export async function takeBody(
  source: BodySource,
  maxBytes: number,
): Promise<{ source: BodySource; body: Buffer | undefined }> {
  if (source.kind === 'consumed') return { source, body: undefined };
  if (source.kind === 'bytes') return { source, body: Buffer.from(source.bytes) };
  if (source.stream.readableEnded) return { source, body: undefined };
  const body = await attempt(() => readUpTo(source.stream, maxBytes));
  return body === undefined ? { source, body } : { source: { kind: 'bytes', bytes: body }, body };
}

/** Reads a stream, at most until it exceeds the limit. */
async function readUpTo(stream: Readable, maxBytes: number): Promise<Buffer> {
  const chunks = new ByteChunks();
  for await (const chunk of stream as AsyncIterable<Buffer | string>) {
    chunks.add(Buffer.from(chunk as string));
    if (chunks.length > maxBytes) break;
  }
  return chunks.bytes();
}

/** Allowed clock difference for this token, in seconds. */
export function toleranceOf({ anatomy, rules }: ObservedRequest): number {
  const { typ } = anatomy.header ?? {};
  const claimed = typeof typ === 'string' ? typ : undefined;
  return rules.tokens.toleranceFor(claimed, anatomy.claims?.['webhook']);
}
