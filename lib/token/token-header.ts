import { decodeBase64urlText } from './json/base64url.js';
import { invalidToken } from './compact-token.js';
import { hasDuplicateMember } from './json/duplicate-member.js';
import { isKeyId } from './identifier.js';
import { isObject } from './json/json-object.js';
import type { ProfileChoice } from './profiles/profile-choice.js';
import { parseJson } from './json/strict-json.js';
import type { WebhookTokenHeader } from './webhook-claims.interface.js';

/** Header texts that are remembered; a key's owner decides what its header says, so there is a bound. */
const REMEMBERED_HEADERS = 256;

/**
 * Reads the headers of tokens, and remembers those that were authenticated: a sender's next token has the
 * same one, and need not have it parsed again (benchmark `token`).
 */
export class TokenHeaders {
  private readonly authentic = new Map<string, WebhookTokenHeader>();
  /** Of the last authentic token: comparing two texts takes a third of finding one in a map, which hashes it. */
  private latest: { readonly segment: string; readonly header: WebhookTokenHeader } | undefined;

  constructor(private readonly profiles: ProfileChoice) {}

  /**
   * @param segment - the header as it stands in the token
   * @throws {@link WebhookTokenError} `invalid_token`
   */
  read(segment: string): WebhookTokenHeader {
    if (segment === this.latest?.segment) return this.latest.header;
    return this.authentic.get(segment) ?? parseHeader(segment, this.profiles);
  }

  /** Remembers a header; its token's signature must hold. */
  remember(segment: string, header: WebhookTokenHeader): void {
    if (header === this.latest?.header) return;
    this.latest = { segment, header };
    // What is remembered is frozen, since every token of this header gets the same object.
    if (Object.isFrozen(header)) return;
    if (this.authentic.size >= REMEMBERED_HEADERS) this.authentic.clear();
    this.authentic.set(segment, Object.freeze(header));
  }
}

function parseHeader(segment: string, profiles: ProfileChoice): WebhookTokenHeader {
  const text = decodeBase64urlText(segment);
  const header = text === undefined ? undefined : parseJson(text);
  if (text === undefined || !isObject(header) || hasDuplicateMember(text, header))
    throw invalidToken();
  const { alg, typ, kid } = header;
  if (typeof alg !== 'string' || !profiles.admits(typ)) throw invalidToken();
  if (kid !== undefined && !isKeyId(kid)) throw invalidToken();
  // Extensions this package does not implement, RFC 7515 section 4.1.11, RFC 7797 and JWE's `zip`.
  if ('crit' in header || 'b64' in header || 'zip' in header) throw invalidToken();
  return header as unknown as WebhookTokenHeader;
}
