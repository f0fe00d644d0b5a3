import type { Readable } from 'node:stream';
import { readBearerToken } from '../request/bearer-token.js';
import type { BodySource, IncomingWebhook } from '../request/incoming-webhook.js';
import type { RequestRules } from '../request/open-request.js';
import type { IssuerKeys, TrustedIssuers } from '../token/keys/key-source.js';
import { readTokenAnatomy, type TokenAnatomy } from '../token/token-anatomy.js';
import { readSeconds } from '../token/token-clock.js';
import type { VerificationKey } from '../token/keys/token-key.js';
import { rulesOf, type TokenRules } from '../token/token-verifier.js';
import { undoDamage, type UndoneDamage } from './token-text.js';

/** A request with all that can be seen of it without a verdict. Nothing in it is authenticated. */
export interface ObservedRequest {
  /** The request again, with its body at hand. */
  readonly incoming: IncomingWebhook;
  /** Absent where the body could not be read to its end. */
  readonly body: Buffer | undefined;
  /** As the header gives it; absent where there is none that a receiver would take. */
  readonly token: string | undefined;
  /** The token as it may have been before something on the way changed its text. */
  readonly undone: UndoneDamage | undefined;
  /** Of the token; where there is none, of the one that was made out. */
  readonly anatomy: TokenAnatomy;
  readonly rules: RequestRules;
  readonly tokenRules: TokenRules | undefined;
  readonly trusted: TrustedIssuers | undefined;
  /** The issuer the token names, where it is trusted. */
  readonly issuer: IssuerKeys | undefined;
  /** What the receiver would have tried, where the issuer is trusted. */
  readonly candidates: readonly VerificationKey[];
  /** The receiver's clock in seconds. */
  readonly now: number;
}

/** Looks at a request from all sides; reserves nothing, and calls nobody's handler. */
export async function observe(
  request: IncomingWebhook,
  rules: RequestRules,
): Promise<ObservedRequest> {
  const { source, body } = await takeBody(request.body, rules.maxBodyBytes);
  const token = tokenOf(request);
  const undone = undoDamage(request.headers);
  const anatomy = readTokenAnatomy(token ?? undone?.token ?? '');
  const tokenRules = rulesOf(rules.tokens);
  const now = readSeconds(tokenRules?.now ?? Date.now);
  // A source that cannot be reached is the verdict's to tell.
  const trusted = await attempt(async () => tokenRules?.keys.ring());
  const iss = anatomy.claims?.['iss'];
  const issuer = typeof iss === 'string' ? trusted?.of(iss) : undefined;
  const kid = anatomy.headerFault === undefined ? anatomy.header?.['kid'] : undefined;
  const candidates = await attempt(async () =>
    (issuer ?? trusted?.sole)?.candidates(kid as string | undefined, now),
  );
  return {
    incoming: { ...request, body: source },
    body,
    token,
    undone,
    anatomy,
    rules,
    tokenRules,
    trusted,
    issuer,
    candidates: candidates ?? [],
    now,
  };
}

async function attempt<T>(run: () => Promise<T>): Promise<T | undefined> {
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

async function takeBody(
  source: BodySource,
  maxBytes: number,
): Promise<{ source: BodySource; body: Buffer | undefined }> {
  if (source.kind === 'consumed') return { source, body: undefined };
  if (source.kind === 'bytes') return { source, body: Buffer.from(source.bytes) };
  if (source.stream.readableEnded) return { source, body: undefined };
  const body = await attempt(() => readUpTo(source.stream, maxBytes));
  return body === undefined ? { source, body } : { source: { kind: 'bytes', bytes: body }, body };
}

/** Reads a stream, and no further than shows that it is too large. */
async function readUpTo(stream: Readable, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of stream as AsyncIterable<Buffer | string>) {
    const bytes = Buffer.from(chunk as string);
    chunks.push(bytes);
    length += bytes.length;
    if (length > maxBytes) break;
  }
  return Buffer.concat(chunks, length);
}

/** Seconds by which clocks may differ for this token. */
export function toleranceOf({ anatomy, tokenRules }: ObservedRequest): number {
  const { typ } = anatomy.header ?? {};
  const claimed = typeof typ === 'string' ? typ : undefined;
  return tokenRules?.toleranceFor(claimed, anatomy.claims?.['webhook']) ?? 0;
}
