import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { createSecureContext, type KeyObject as EncryptedPem } from 'node:tls';
import { CERTIFICATES, type EgressTlsOptions } from '../egress/guarded-agent.js';
import type { Problems } from '../options/problems.js';
import { isOptions, object, oneOf, optional, required, type Rule, rule } from '../options/rules.js';
import { unprinted } from '../options/unprinted.js';
import { isEncryptedPem } from '../token/keys/pem.js';
import type { SentProfile } from '../token/webhook-token.constants.js';
import { headerProblem } from './endpoint.js';
import { tokenProfile } from './sent-profile.js';

/**
 * What an endpoint requires besides the signature, for example an API gateway in front of it. Secrets: they are sealed in a
 * store, and no view shows more than their kinds.
 */
export interface EndpointCredentials {
  /** Authenticates the connection (mutual TLS). */
  readonly certificate?: ClientCertificate | undefined;
  /**
   * Headers with secret values, such as `{ 'X-Api-Key': '…' }`. `Authorization` is only possible with the profile
   * `'standard-webhooks'`: the other profiles send the webhook token in it.
   */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** An access token that the publisher requests, and renews before it expires. */
  readonly oauth2?: OAuth2ClientCredentials | undefined;
}

/** A client certificate. Strings in the form PEM. */
export interface ClientCertificate {
  /** With its intermediate certificates. */
  readonly cert: string;
  /** Not encrypted: credentials are sealed as a whole. */
  readonly key: string;
  /** Authorities that issue the certificate of the endpoint's server; default: those of the publisher's `tls`. */
  readonly ca?: string | undefined;
}

/** The client credentials grant of OAuth 2. */
export interface OAuth2ClientCredentials {
  /** The token endpoint. The egress guard applies to it. */
  readonly tokenUrl: string;
  readonly clientId: string;
  readonly clientSecret: string;
  /** Scopes, separated by spaces. */
  readonly scope?: string | undefined;
  /** More parameters of the request for a token, such as `{ audience: 'https://api.example' }`. */
  readonly parameters?: Readonly<Record<string, string>> | undefined;
  /** How client id and secret are sent: by HTTP Basic (default), or in the `'body'`. */
  readonly clientAuthentication?: 'basic' | 'body' | undefined;
  /** The header that has `Bearer <access token>`; default `Authorization`, which needs the profile `'standard-webhooks'`. */
  readonly header?: string | undefined;
}

/** The kinds of credentials, which views show. */
export type CredentialKind = keyof EndpointCredentials;

const AUTHORIZATION = 'Authorization';
const MAX_PEM = 32_768;
const MAX_VALUE = 8_192;
const MAX_HEADERS = 20;
const KEY_TYPES = new Set<string>(['rsa', 'ec', 'ed25519', 'ed448']);
const MAX_RSA_EXPONENT = 2n ** 32n;
/** Signing a handshake takes 40 ms with so many bits, and eight times as long with twice as many. */
const MAX_RSA_BITS = 8_192;

const short = (max: number): Rule<string> =>
  rule(
    (value) => typeof value === 'string' && value !== '' && value.length <= max,
    `must be a non-empty string of at most ${max} characters`,
  );

const isText = (value: unknown): boolean => typeof value === 'string' && value.length <= MAX_VALUE;

const CERTIFICATE = object<ClientCertificate>()(
  {
    cert: required(short(MAX_PEM)),
    key: required(short(MAX_PEM)),
    ca: optional(short(MAX_PEM)),
  },
  {
    across(tls, at) {
      if (at.has('')) return;
      // Deriving a key from a passphrase blocks the process, for as long as the one who encrypted it chose.
      if (isEncryptedPem(tls.key)) {
        const remedy = 'decrypt it with "openssl pkcs8", since it is stored encrypted';
        return at.add('key', `must not be encrypted: ${remedy}`);
      }
      if (tls.ca !== undefined) CERTIFICATES(tls.ca, at, 'ca');
      checkTls(tls, at, 'pass certificates and keys as PEM');
      if (at.has('')) return;
      const problem = costProblem(createPrivateKey(tls.key));
      if (problem !== undefined) at.add('key', problem);
    },
  },
);

/** Says why a handshake with a key could block the process, which signs it on the event loop. */
function costProblem(key: KeyObject): string | undefined {
  const { asymmetricKeyType = '', asymmetricKeyDetails: details } = key;
  if (!KEY_TYPES.has(asymmetricKeyType)) return 'must be an RSA, EC, Ed25519 or Ed448 key';
  if (asymmetricKeyType !== 'rsa') return undefined;
  if (details!.modulusLength! > MAX_RSA_BITS) return `must have at most ${MAX_RSA_BITS} bits`;
  // Numbers that are longer than they need be give the same signature, after seconds.
  const jwk = key.export({ format: 'jwk' });
  const size = (name: keyof typeof jwk): number =>
    Buffer.byteLength(jwk[name] as string, 'base64url');
  const isUsual =
    details!.publicExponent! <= MAX_RSA_EXPONENT &&
    size('d') <= size('n') &&
    // Each is rounded up.
    size('p') + size('q') <= size('n') + 1 &&
    size('dp') <= size('p') &&
    size('dq') <= size('q') &&
    size('qi') <= size('p');
  return isUsual ? undefined : 'must have numbers that are no longer than its modulus';
}

/** Adds why certificates and keys cannot be used, unless they have a problem already. */
export function checkTls(tls: EgressTlsOptions, at: Problems, remedy: string): void {
  if (at.has('')) return;
  try {
    if (!isPaired(tls)) {
      at.add('key', 'does not belong to the certificate: cert must begin with that of the key');
    } else {
      createSecureContext(tls);
    }
  } catch {
    // The error is dropped, because it may quote the key or the passphrase.
    at.add('', `cannot be read; ${remedy}`);
  }
}

/**
 * Whether each certificate has its key. Node accepts a key of another type, and then sends no certificate.
 *
 * @throws if one of them cannot be read
 */
function isPaired({ cert = [], key = [], passphrase }: EgressTlsOptions): boolean {
  const keys = [key].flat().map((one) => {
    const { pem = one as string, passphrase: own } = one as Partial<EncryptedPem>;
    return createPrivateKey({ key: pem, passphrase: own ?? passphrase });
  });
  const certificates = [cert].flat().map((one) => new X509Certificate(one));
  return certificates.every((one) => keys.some((its) => one.checkPrivateKey(its)));
}

const HEADERS: Rule<Readonly<Record<string, string>>> = (value, at, name) => {
  const isUsable = isOptions(value) && Object.keys(value).length > 0;
  if (!isUsable)
    return at.add(name, 'must be an object with at least one header: { name: value }') as never;
  const seen = new Set<string>();
  at.require(
    Object.keys(value).length <= MAX_HEADERS,
    name,
    `must be at most ${MAX_HEADERS} headers`,
  );
  for (const [header, one] of Object.entries(value)) {
    const isRepeated = seen.has(header.toLowerCase());
    seen.add(header.toLowerCase());
    const problem = isRepeated
      ? 'is listed twice; header names ignore case'
      : (sizeProblem(one) ?? ownHeaderProblem(header, one));
    if (problem !== undefined) at.add(`${name}[${JSON.stringify(header)}]`, problem);
  }
  return value as Record<string, string>;
};

function sizeProblem(value: unknown): string | undefined {
  if (typeof value !== 'string') return undefined;
  if (value.trim() === '') return 'has no value; is the environment variable set?';
  return value.length > MAX_VALUE ? `is longer than ${MAX_VALUE} characters` : undefined;
}

function ownHeaderProblem(header: string, value: unknown): string | undefined {
  return headerProblem(isAuthorization(header) ? 'X-Authorization' : header, value);
}

const OAUTH2 = object<OAuth2ClientCredentials>()({
  tokenUrl: required(short(2_048)),
  clientId: required(short(MAX_VALUE)),
  clientSecret: required(short(MAX_VALUE)),
  scope: optional(short(MAX_VALUE)),
  parameters: optional(
    rule<Readonly<Record<string, string>>>(
      (value) => isOptions(value) && Object.values(value).every(isText),
      'must be an object of strings: { audience: "https://api.example" }',
    ),
  ),
  clientAuthentication: optional(oneOf('basic', 'body')),
  header: optional((value, at, name) => {
    const problem = typeof value === 'string' ? ownHeaderProblem(value, '') : 'must be a string';
    return (problem === undefined ? value : at.add(name, problem)) as string;
  }),
});

const ALL = object<EndpointCredentials>()(
  {
    certificate: optional(CERTIFICATE),
    headers: optional(HEADERS),
    oauth2: optional(OAUTH2),
  },
  {
    across({ certificate, headers, oauth2 }, at) {
      const isEmpty = [certificate, headers, oauth2].every((one) => one === undefined);
      at.require(
        !isEmpty || at.has(''),
        '',
        'is empty: leave it out, or set certificate, headers or oauth2',
      );
      const header = (oauth2?.header ?? AUTHORIZATION).toLowerCase();
      const isTaken =
        oauth2 !== undefined && namesOf(headers).some((name) => name.toLowerCase() === header);
      at.require(
        !isTaken || at.has('headers', 'oauth2'),
        'headers',
        'sets the header that has the access token of oauth2: remove it, or choose another oauth2.header',
      );
    },
  },
);

export const CREDENTIALS: Rule<EndpointCredentials> = (value, at, name) => {
  const read = ALL(value, at, name);
  return isOptions(read) ? unprinted(read, '[credentials]') : read;
};

export function kindsOf(credentials: EndpointCredentials): CredentialKind[] {
  const kinds: readonly CredentialKind[] = ['certificate', 'headers', 'oauth2'];
  return kinds.filter((kind) => credentials[kind] !== undefined);
}

/**
 * Says why credentials cannot be used with a wire format, and the remedy: the token is in `Authorization`, and a second value
 * would replace it.
 */
export function credentialsConflict(
  { headers, oauth2 }: EndpointCredentials,
  profile: SentProfile,
): string | undefined {
  if (tokenProfile(profile) === undefined) return undefined;
  const inHeaders = namesOf(headers).some(isAuthorization);
  const inOAuth = oauth2 !== undefined && isAuthorization(oauth2.header ?? AUTHORIZATION);
  if (!inHeaders && !inOAuth) return undefined;
  const remedy = inHeaders ? 'send it in another header' : 'set oauth2.header to another one';
  return `needs the header Authorization, which has the webhook token: ${remedy}, or use the profile 'standard-webhooks'`;
}

/** Adds {@link credentialsConflict}, unless the profile or the credentials have a problem already. */
export function checkCredentials(
  credentials: EndpointCredentials | undefined,
  profile: SentProfile,
  at: Problems,
): void {
  if (credentials === undefined || at.has('profile', 'credentials')) return;
  const problem = credentialsConflict(credentials, profile);
  if (problem !== undefined) at.add('credentials', problem);
}

/** The headers of a request, with the access token of `oauth2` if it has one. */
export function credentialHeaders(
  { headers, oauth2 }: EndpointCredentials,
  accessToken: string | undefined,
): Record<string, string> {
  if (oauth2 === undefined || accessToken === undefined) return { ...headers };
  return { ...headers, [oauth2.header ?? AUTHORIZATION]: `Bearer ${accessToken}` };
}

function isAuthorization(name: string): boolean {
  return name.toLowerCase() === 'authorization';
}

function namesOf(headers: Readonly<Record<string, string>> | undefined): string[] {
  return Object.keys(headers ?? {});
}
