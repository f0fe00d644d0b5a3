import { defined } from '../../options/defined.js';
import { parseJson } from '../../token/json.js';
import { translateOutpostFilter } from './outpost-filter.js';
import {
  BY_HAND,
  credentialsIn,
  elementsOf,
  membersOf,
  type SourceEndpoint,
  textOf,
  timeOf,
  unlessEmpty,
  withoutDeepLevels,
} from './source-endpoint.js';

/** How Outpost signs: the value of its setting DESTINATIONS_WEBHOOK_MODE. */
export type OutpostMode = 'default' | 'standard';

/** Reads a destination of Outpost, as its API lists it. */
export function readOutpost(item: unknown, mode: OutpostMode): SourceEndpoint {
  const { id, tenant_id, type, topics, filter, config, credentials, metadata, ...rest } =
    membersOf(item);
  const { url, custom_headers } = membersOf(config);
  const { secret, previous_secret, previous_secret_invalid_at } = membersOf(credentials);
  const problems: string[] = [];
  const notes: string[] = [];
  if (type !== 'webhook') {
    problems.push(
      `type: is ${JSON.stringify(type)}, and only webhook destinations can be imported; leave it out with --skip-invalid`,
    );
  }
  const tenant = textOf(tenant_id);
  if (tenant === undefined) problems.push('tenant_id: is missing; add it to the export');
  if (rest['expires_at'] !== undefined && rest['expires_at'] !== null) {
    problems.push(`expires_at: endpoints do not expire here; delete it yourself: ${BY_HAND}`);
  }
  if (unlessEmpty(rest['delivery_metadata']) !== undefined) {
    notes.push('delivery_metadata: these headers are not sent');
  }
  const translated = unlessEmpty(filter) === undefined ? undefined : translateOutpostFilter(filter);
  problems.push(...(translated?.problems ?? []));
  if (translated?.hasOperators === true) {
    notes.push('filter: operators also compare the elements of lists');
  }
  const disabledAt = rest['disabled_at'] ?? '';
  if (typeof disabledAt !== 'string') {
    problems.push(
      `disabled_at: ${JSON.stringify(disabledAt)} is unknown; write a time in ISO 8601, or null`,
    );
  }
  const isStandard = mode === 'standard';
  notes.push(
    isStandard
      ? 'the header webhook-topic is not sent, and the body does not name the event'
      : 'the partner has to verify Standard Webhooks, with the same secret, instead of x-outpost-signature; then call resume',
  );
  const expiresAt = timeOf(previous_secret_invalid_at);
  const isRotating = unlessEmpty(previous_secret) !== undefined && previous_secret !== '';
  if (isRotating && expiresAt === undefined) {
    problems.push(
      `credentials.previous_secret_invalid_at: ${JSON.stringify(previous_secret_invalid_at)} is unknown; write a time in ISO 8601, or remove previous_secret`,
    );
  }
  const isEvery = topics === '*' || elementsOf(topics).includes('*');
  const events = Array.isArray(topics) ? elementsOf(topics).map(patternOf) : (topics ?? []);
  return {
    endpoint: defined({
      id,
      tenant,
      url,
      events: isEvery ? undefined : events,
      metadata: unlessEmpty(metadata),
      credentials: credentialsIn(readHeaders(custom_headers, problems)),
      filter: translated?.filter,
      secret,
      // In the mode "standard" the body is the data, and stays so.
      envelope: isStandard ? false : undefined,
    }),
    previous: isRotating && expiresAt !== undefined ? [{ secret: previous_secret, expiresAt }] : [],
    state: disabledAt !== '' ? 'disabled' : isStandard ? 'enabled' : 'paused',
    notes,
    problems,
  };
}

/** In a topic of Outpost, `*` stands for any characters: as a whole segment, for one or more segments. */
function patternOf(topic: unknown): unknown {
  if (typeof topic !== 'string') return topic;
  return topic
    .split('.')
    .map((segment) => (segment === '*' ? '*.**' : segment))
    .join('.');
}

/** Outpost stores custom headers as a JSON string; an object is read too. */
function readHeaders(value: unknown, problems: string[]): unknown {
  if (value === '') return undefined;
  if (typeof value !== 'string') return value;
  const headers = withoutDeepLevels(parseJson(value));
  if (headers === undefined) {
    problems.push('config.custom_headers: is not JSON; correct it in Outpost');
  }
  return headers;
}
