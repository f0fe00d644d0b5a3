import {
  BY_HAND,
  defined,
  elementsOf,
  type ImportedState,
  membersOf,
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
  const { uid, owner_id, url, name, description, status, secrets, ...rest } = endpoint;
  const problems: string[] = [];
  const notes = [
    "the partner has to verify Standard Webhooks instead of X-Convoy-Signature; the key is its secret's bytes: new Webhook(secret, { format: 'raw' }); then call resume",
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
  if (unlessEmpty(rest['mtls_client_cert']) !== undefined) {
    problems.push(
      'mtls_client_cert: is an option of the publisher here (tls), for all endpoints; leave it out with --skip-invalid',
    );
  }
  if (textOf(membersOf(rest['authentication'])['type']) !== undefined) {
    problems.push(
      'authentication: stored headers are not encrypted; let the partner verify the signature alone, or configure the endpoint in the options of the publisher',
    );
  }
  const rate = Number(rest['rate_limit'] ?? 0);
  if (rate > 0) notes.push(`rate_limit: ${rate} is not imported`);
  const secret = currentSecret(secrets);
  return {
    endpoint: defined({
      id: uid,
      tenant: textOf(owner_id),
      url,
      events: eventsOf(subscriptions, problems),
      description: textOf(description) ?? textOf(name),
      timeout: timeoutOf(rest['http_timeout']),
      // Convoy signs with the characters of the secret, which Standard Webhooks would decode.
      secret: secret === undefined ? undefined : `whsec_${Buffer.from(secret).toString('base64')}`,
    }),
    state: state ?? 'paused',
    notes,
    problems,
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

/** Seconds, or a duration; 0 is the default of Convoy. */
function timeoutOf(timeout: unknown): unknown {
  if (typeof timeout === 'number') return timeout === 0 ? undefined : `${timeout}s`;
  return textOf(timeout);
}
