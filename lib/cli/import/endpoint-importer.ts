import { randomBytes, randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { SystemClock } from '../../clock/webhook-clock.js';
import { EndpointRegistry } from '../../endpoints/endpoint.registry.js';
import type { EndpointStore } from '../../endpoints/endpoint-store.js';
import {
  type SealingKey,
  type SecretSealer,
  unreadableSecret,
} from '../../endpoints/secret-sealer.js';
import type { NewEndpoint } from '../../endpoints/webhook-endpoint.interface.js';
import { WebhookEndpoints } from '../../endpoints/webhook.endpoints.js';
import { isWebhookError, WebhookDeliveryError } from '../../errors/webhook.error.js';
import { Problems } from '../../options/problems.js';
import { type EgressOptions, EgressPolicy } from '../../egress/egress-policy.js';
import type { PostgresClient } from '../../postgres/database.js';
import { PostgresEndpointStore } from '../../postgres/postgres-endpoint.store.js';
import { resolvePublisherOptions } from '../../publisher/publisher-options.resolver.js';
import { InProcessQueue } from '../../queue/in-process.queue.js';
import { UsageError } from '../arguments.js';
import { type ImportedState, membersOf, type SourceEndpoint } from './source-endpoint.js';

/** The outcome for one endpoint. Never contains a secret. */
export interface ImportedEndpoint {
  readonly id: string | undefined;
  readonly tenant: string | undefined;
  /** Without its query, which may contain a credential. */
  readonly url: string | undefined;
  readonly events: readonly string[];
  readonly state: ImportedState;
  /** Whether requests have the envelope `{ type, timestamp, data }`; otherwise their body is the data. */
  readonly envelope: boolean;
  /** `exists`: the store has an endpoint with this id, which is left as it is. */
  readonly result: 'create' | 'exists' | 'invalid';
  readonly notes: readonly string[];
  readonly problems: readonly string[];
}

/** Where endpoints are written. */
export interface ImportTarget {
  /** In a transaction, which the caller ends. */
  readonly client: PostgresClient;
  readonly schema: string;
  /** Left out for a dry run, which seals with a random one. */
  readonly sealingKey: SealingKey | undefined;
  /** Of {@link checkUrls}. */
  readonly egress: EgressPolicy;
}

/** Checks that run at once: a host has 3 s to resolve, and few resolve at the same time. */
const CHECKS = 4;

/** Resolves each URL once. */
class CheckedUrls extends EgressPolicy {
  private readonly checked = new Map<string, Promise<URL>>();

  override async checkResolvedUrl(url: string): Promise<URL> {
    const check = this.checked.get(url) ?? super.checkResolvedUrl(url);
    this.checked.set(url, check);
    return check;
  }
}

/** Checks all URLs before the transaction, during which the application would wait for each host that does not resolve. */
export async function checkUrls(
  found: readonly SourceEndpoint[],
  options: Pick<EgressOptions, 'allowHttp' | 'allowPrivateNetworks'>,
): Promise<EgressPolicy> {
  const egress = new CheckedUrls(options);
  const urls = found
    .flatMap(({ endpoint: { url, credentials } }) => [
      url,
      membersOf(membersOf(credentials)['oauth2'])['tokenUrl'],
    ])
    .filter((url) => typeof url === 'string')
    .values();
  const checkNext = async (): Promise<void> => {
    // A refusal is reported with the other problems of its endpoint.
    for (const url of urls) await egress.checkResolvedUrl(url).catch(() => {});
  };
  await Promise.all(Array.from({ length: CHECKS }, checkNext));
  return egress;
}

const OTHER_TENANT =
  'id: another tenant has an endpoint with this id; give this one another id in the export';
const LISTED_TWICE =
  'id: is listed twice in the export, with different values; remove one of the entries';
/** Milliseconds for a statement. */
const TIMEOUT = 120_000;
/** Less than the longest overlap, so that equal ones can follow each other. */
const MAX_OVERLAP = 3_649 * 86_400_000;

/** Creates the endpoints that do not exist, as `WebhookEndpoints.create` does and with the same checks. */
export async function importEndpoints(
  found: readonly SourceEndpoint[],
  { client, schema, sealingKey, egress }: ImportTarget,
): Promise<ImportedEndpoint[]> {
  const store = new PostgresEndpointStore(client, { schema, timeout: TIMEOUT });
  const endpoints = await managerOf(store, sealingKey, egress);
  const imported: ImportedEndpoint[] = [];
  const byId = new Map<unknown, SourceEndpoint>();
  for (const one of found) {
    const { id } = one.endpoint;
    const first = byId.get(id) ?? one;
    if (id !== undefined) byId.set(id, first);
    const problems = isDeepStrictEqual(one, first) ? one.problems : [...one.problems, LISTED_TWICE];
    imported.push(await importEndpoint({ ...one, problems }, endpoints));
  }
  return imported;
}

async function importEndpoint(
  { endpoint, previous = [], state, notes, problems }: SourceEndpoint,
  endpoints: WebhookEndpoints,
): Promise<ImportedEndpoint> {
  const shown = {
    id: shownText(endpoint.id),
    tenant: shownText(endpoint.tenant),
    url: withoutQuery(endpoint.url),
    events: [endpoint.events ?? '**'].flat().filter((one) => typeof one === 'string'),
    state,
    envelope: endpoint.envelope !== false,
    notes,
  };
  const missing = [
    ...(endpoint.id === undefined ? ['id: is missing; add it to the export'] : []),
    ...(endpoint.secret === undefined && problems.length === 0
      ? ['secret: is missing; add it to the export']
      : []),
  ];
  if (missing.length + problems.length > 0) {
    return { ...shown, result: 'invalid', problems: [...missing, ...problems] };
  }
  let id: string | undefined;
  try {
    const created = { ...endpoint, profile: 'standard-webhooks' } as NewEndpoint;
    const older = previous
      .filter(({ expiresAt }) => expiresAt > Date.now())
      .sort((one, other) => one.expiresAt - other.expiresAt);
    const [secret, ...newer] = [...older.map((one) => one.secret as string), created.secret];
    ({ id } = (await endpoints.create({ ...created, secret })).endpoint);
    let overlap = 0;
    for (const [index, next] of newer.entries()) {
      // A key replaces those that would sign from the same time on.
      const remaining = Math.min(older[index]!.expiresAt - Date.now(), MAX_OVERLAP);
      overlap = Math.max(remaining, overlap + 1);
      await endpoints.rotateKey(id, { secret: next, overlap });
    }
    if (state === 'disabled') await endpoints.disable(id);
    if (state === 'paused') await endpoints.pause(id);
    return { ...shown, result: 'create', problems: [] };
  } catch (error) {
    if (isWebhookError(error, 'endpoint_exists')) {
      const existing = await endpoints.get(shown.id!);
      return existing.tenant === shown.tenant
        ? { ...shown, result: 'exists', problems: [] }
        : { ...shown, result: 'invalid', problems: [OTHER_TENANT] };
    }
    const isRefused =
      isWebhookError(error, 'invalid_option') || isWebhookError(error, 'destination_blocked');
    if (!isRefused) throw error;
    // The second secret is checked after the endpoint was created with the first.
    if (id !== undefined) await endpoints.delete(id);
    return { ...shown, result: 'invalid', problems: problemsOf(error) };
  }
}

function problemsOf(error: Error): string[] {
  const problems = error instanceof WebhookDeliveryError ? error.problems : undefined;
  if (problems === undefined) return [`url: ${error.message}`];
  return problems.map(({ path, message }) => (path === '' ? message : `${path}: ${message}`));
}

function shownText(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

function withoutQuery(url: unknown): string | undefined {
  if (typeof url !== 'string' || !URL.canParse(url)) return undefined;
  const { origin, pathname, search } = new URL(url);
  return `${origin}${pathname}${search === '' ? '' : '?…'}`;
}

async function managerOf(
  store: EndpointStore,
  sealingKey: SealingKey | undefined,
  egress: ImportTarget['egress'],
): Promise<WebhookEndpoints> {
  const problems = new Problems();
  const { resolved } = resolvePublisherOptions(
    {
      // Options need a key. Nothing is signed with this one.
      issuer: 'urn:nestjs-webhook-token:import',
      secret: randomBytes(32).toString('base64'),
      endpointStore: store,
      sealingKeys: [sealingKey ?? { id: randomUUID(), key: randomBytes(32).toString('base64') }],
      // Those of the application are not known; what exists elsewhere is not refused.
      endpointLimits: { perTenant: Number.MAX_SAFE_INTEGER, keys: Number.MAX_SAFE_INTEGER },
    },
    { clock: new SystemClock(), production: false },
    problems,
  );
  const [problem] = problems.all;
  if (problem !== undefined) {
    throw new UsageError(`The sealing key cannot be used: ${problem.path} ${problem.message}.`);
  }
  if (sealingKey !== undefined) await requireKeyOf(store, resolved!.sealer, sealingKey.id);
  const checked = { ...resolved!, egress };
  return new WebhookEndpoints(
    checked,
    new EndpointRegistry(checked),
    { attempt: async () => Promise.reject(new Error('This command sends nothing.')) },
    new InProcessQueue(),
  );
}

/** Refuses a key that opens none of the stored secrets: the application could not read what it seals. */
async function requireKeyOf(
  store: EndpointStore,
  sealer: SecretSealer,
  keyId: string,
): Promise<void> {
  const unreadable = await unreadableSecret(store, sealer);
  if (unreadable === undefined) return;
  throw new UsageError(
    `The sealing key "${keyId}" does not open the secret of endpoint "${unreadable.endpointId}", nor any other: pass the first of the application's sealingKeys and its id; if it has replaced another key, call reseal() before you import.`,
  );
}
