import { defined } from '../../options/defined.js';
import {
  BY_HAND,
  elementsOf,
  type ImportedState,
  membersOf,
  rateLimitOf,
  type SourceEndpoint,
  textOf,
  timeOf,
  unlessEmpty,
} from './source-endpoint.js';

const STATES: ReadonlyMap<unknown, ImportedState> = new Map<unknown, ImportedState>([
  // The partner has to change its code before it can verify a request.
  ['active', 'paused'],
  ['paused', 'paused'],
  ['inactive', 'disabled'],
]);

/**
 * Reads the endpoints of Convoy, their subscriptions and the filters of these: `{ endpoints, subscriptions, filters }`, as its API lists
 * them.
 *
 * @returns none if the export lacks one of the lists
 */
export function readConvoy(exported: unknown): SourceEndpoint[] {
  const { endpoints, subscriptions, filters } = membersOf(exported);
  // Without its filters, an endpoint would get events that its partner has excluded.
  if (!Array.isArray(subscriptions) || !Array.isArray(filters)) return [];
  const ofSubscription = elementsOf(filters).map(membersOf);
  const all = elementsOf(subscriptions)
    .map(membersOf)
    .map((one): Members => ({
      ...one,
      filters: ofSubscription.filter(({ subscription_id }) => subscription_id === one['uid']),
    }));
  return elementsOf(endpoints).map((item) => {
    const endpoint = membersOf(item);
    const own = all.filter(
      ({ endpoint_id, endpoint_metadata }) =>
        (endpoint_id ?? membersOf(endpoint_metadata)['uid']) === endpoint['uid'],
    );
    return readEndpoint(endpoint, own);
  });
}

type Members = Readonly<Record<string, unknown>>;

function readEndpoint(endpoint: Members, subscriptions: readonly Members[]): SourceEndpoint {
  const { uid, owner_id, url, target_url, name, title, description, status, ...rest } = endpoint;
  const problems: string[] = [];
  const notes = [
    "the partner has to verify Standard Webhooks instead of X-Convoy-Signature; the key is its secret's bytes: new Webhook(Buffer.from(secret), { format: 'raw' }); then call resume",
  ];
  const state = STATES.get(status);
  if (state === undefined) {
    problems.push(
      `status: ${JSON.stringify(status)} is unknown; activate or deactivate the endpoint in Convoy`,
    );
  }
  if (textOf(rest['content_type'] ?? 'application/json') !== 'application/json') {
    problems.push(`content_type: only JSON can be imported; ${BY_HAND}`);
  }
  const secret = currentSecret(rest['secrets']);
  const timeout = secondsOf(rest['http_timeout']);
  return {
    endpoint: defined({
      id: uid,
      tenant: textOf(owner_id),
      // Answers of versions before 2024-04-01 have the names "target_url" and "title".
      url: url ?? target_url,
      events: eventsOf(subscriptions, problems),
      description: textOf(description) ?? textOf(name) ?? textOf(title),
      timeout: timeout === 0 ? undefined : `${timeout}s`,
      rateLimit: rateLimitOf(rest['rate_limit'], secondsOf(rest['rate_limit_duration'])),
      credentials: credentialsOf(rest, problems),
      // Convoy signs with the characters of the secret, which Standard Webhooks would decode.
      secret: secret === undefined ? undefined : `whsec_${Buffer.from(secret).toString('base64')}`,
    }),
    state: state ?? 'paused',
    notes,
    problems,
  };
}

/** What the API returns instead of the private key of a certificate. */
const REDACTED = '[REDACTED]';

function credentialsOf(
  { authentication, mtls_client_cert }: Members,
  problems: string[],
): object | undefined {
  const { client_cert: cert, client_key: key } = membersOf(mtls_client_cert);
  if (key === REDACTED) {
    problems.push(
      'mtls_client_cert: Convoy does not return its private key; add it to the export as client_key',
    );
  }
  const certificate = textOf(cert) === undefined ? undefined : { cert, key };
  return unlessEmpty(
    defined({ certificate, ...authenticationOf(membersOf(authentication), problems) }),
  ) as object | undefined;
}

function authenticationOf(authentication: Members, problems: string[]): object {
  const type = textOf(authentication['type']);
  if (type === undefined) return {};
  const { header_name, header_value, username, password, ...oauth2 } = membersOf(
    authentication[type],
  );
  if (type === 'api_key') return { headers: { [textOf(header_name) ?? '']: header_value } };
  if (type === 'basic_auth') {
    if (typeof username !== 'string' || typeof password !== 'string') {
      problems.push('authentication: its user name and its password must be strings; correct them');
      return {};
    }
    const pair = Buffer.from(`${username}:${password}`).toString('base64');
    return { headers: { Authorization: `Basic ${pair}` } };
  }
  const { authentication_type, grant_type, field_mapping, expiry_time_unit, audience } = oauth2;
  const isStandard =
    (textOf(grant_type) ?? 'client_credentials') === 'client_credentials' &&
    (textOf(expiry_time_unit) ?? 'seconds') === 'seconds' &&
    Object.entries(membersOf(field_mapping)).every(([name, own]) => (own || name) === name);
  if (type !== 'oauth2' || authentication_type !== 'shared_secret' || !isStandard) {
    problems.push(
      `authentication: only API keys, Basic, and client credentials of OAuth 2 with a shared secret can be imported; ${BY_HAND}`,
    );
    return {};
  }
  return {
    oauth2: defined({
      tokenUrl: oauth2['url'],
      clientId: oauth2['client_id'],
      clientSecret: oauth2['client_secret'],
      scope: textOf(oauth2['scope']),
      parameters: textOf(audience) === undefined ? undefined : { audience },
      clientAuthentication: 'body',
    }),
  };
}

function eventsOf(subscriptions: readonly Members[], problems: string[]): unknown {
  if (subscriptions.length === 0) {
    problems.push('has no subscription, so it gets no event; leave it out with --skip-invalid');
  }
  const types = subscriptions.flatMap(({ filter_config, function: code, filters }) => {
    const { event_types, filter } = membersOf(filter_config);
    const all = [filter, ...elementsOf(filters)].map(membersOf);
    if (all.some(({ enabled_at }) => enabled_at === null)) {
      problems.push(`filters: one of them is not active; delete it in Convoy, or ${BY_HAND}`);
    }
    if (all.some(hasConditions)) {
      problems.push(
        `filter: Convoy skips a condition whose member is missing, and this library does not; ${BY_HAND}`,
      );
    }
    if (textOf(code) !== undefined) {
      problems.push(`function: there is none here; publish the data that it makes: ${BY_HAND}`);
    }
    return elementsOf(event_types);
  });
  return types.includes('*') ? undefined : [...new Set(types)];
}

function hasConditions({ headers, body, query, path }: Members): boolean {
  return [headers, body, query, path].some((part) => unlessEmpty(part) !== undefined);
}

/** The newest secret that does not expire. */
function currentSecret(secrets: unknown): string | undefined {
  const valid = elementsOf(secrets)
    .map(membersOf)
    .filter(({ expires_at, deleted_at }) => (expires_at ?? deleted_at ?? null) === null)
    .sort((one, other) => (timeOf(other['created_at']) ?? 0) - (timeOf(one['created_at']) ?? 0));
  return textOf(valid[0]?.['value']);
}

/** Seconds, or in older answers a duration of Go, such as `1m0s`; 0 without one, `NaN` if it is neither. */
function secondsOf(duration: unknown): number {
  if (typeof duration === 'number') return duration;
  const found = /^(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?$/.exec(textOf(duration) ?? '');
  if (found === null) return NaN;
  const [hours, minutes, seconds] = found.slice(1).map((part) => Number(part ?? 0));
  return hours! * 3_600 + minutes! * 60 + seconds!;
}
