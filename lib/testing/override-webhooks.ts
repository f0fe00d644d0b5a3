import { randomBytes } from 'node:crypto';
import type { LoggerService } from '@nestjs/common';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { MemoryEndpointStore } from '../endpoints/memory-endpoint.store.js';
import { MemoryInboxStore } from '../inbox/memory-inbox.store.js';
import type { WebhookIssuer } from '../keys/issuer-list.js';
import type { KeyProvider } from '../keys/key-provider.js';
import { readOptions, requireOptions } from '../options/read-options.js';
import { CLOCK, instance, isOptions, object, optional, rule } from '../options/rules.js';
import { InProcessQueue } from '../queue/in-process.queue.js';
import type { WebhookQueue } from '../queue/webhook-queue.js';
import { EventPoller } from '../receiver/event.poller.js';
import type { WebhookReceiverOptions } from '../receiver/receiver-options.js';
import type { ResolvedReceiver } from '../receiver/receiver-options.resolver.js';
import { LeaseKeeper } from '../replay/lease-keeper.js';
import { MemoryReplayStore } from '../replay/memory-replay.store.js';
import type { ReplayStore } from '../replay/replay-store.js';
import { WEBHOOK_HTTP } from '../publisher/webhook-http.js';
import { OAuthTokens } from '../sending/oauth-tokens.js';
import { isObject } from '../token/json.js';
import type { WebhookKey } from '../token/keys/key-material.js';
import { MODULE_OPTIONS_TOKEN, RESOLVED_OPTIONS } from '../webhook.module.js';
import type { WebhookModuleOptions } from '../webhook-module-options.interface.js';
import {
  resolveAndCheckExamples,
  type ResolvedWebhookOptions,
} from '../webhook-options.resolver.js';
import { InMemoryWebhookTransport } from './in-memory-webhook.transport.js';

/** What replaces the parts of the application that leave the process. */
export interface OverrideWebhooksOptions {
  /** Default: the application's own. */
  readonly clock?: WebhookClock | undefined;
  /** Default: one that answers 204 to everything. */
  readonly transport?: InMemoryWebhookTransport | undefined;
  /** Default: one in memory. Pass a `PostgresReplayStore` to test `event.commit(tx)` with its database. */
  readonly replayStore?: ReplayStore | undefined;
  /** Keys that verify tokens, by issuer: the public keys of the test, because no `jwksUri` is fetched. Default: none. */
  readonly issuerKeys?: IssuerTestKeys | undefined;
}

type IssuerProvider = KeyProvider<readonly WebhookIssuer[]>;

type IssuerTestKeys = Readonly<Record<string, readonly WebhookKey[]>>;

const OVERRIDES = object<OverrideWebhooksOptions>()({
  clock: optional(CLOCK),
  transport: optional(instance('an InMemoryWebhookTransport', 'script')),
  replayStore: optional(instance('a ReplayStore', 'reserve')),
  issuerKeys: optional(
    rule<IssuerTestKeys>(
      (value) => isOptions(value) && Object.values(value).every(Array.isArray),
      'must be lists of keys by issuer: { "https://shop.example": [{ kid, alg, key }] }',
    ),
  ),
});

/** The part of `TestingModuleBuilder` of `@nestjs/testing` that is used. */
export interface TestingBuilder {
  overrideProvider(token: unknown): {
    useValue(value: unknown): unknown;
    useFactory(options: {
      factory: (options: WebhookModuleOptions) => unknown;
      inject: unknown[];
    }): unknown;
  };
  setLogger?(logger: LoggerService): unknown;
}

/**
 * Replaces the queues, stores and HTTP requests of the application's own `WebhookModule` with parts in memory. All other options
 * stay as they are. What the application could not start with without this function still fails at start-up.
 *
 * ```ts
 * const testing = await overrideWebhooks(Test.createTestingModule({ imports: [AppModule] })).compile();
 * ```
 *
 * - If the application's queue joins transactions, `publish(…, { tx })` records at once, even if the transaction is rolled back.
 * - If its replay store does, `event.commit(tx)` records at once too. Pass a `replayStore` to test with its database.
 *
 * @returns the builder
 */
export function overrideWebhooks<Builder extends TestingBuilder>(
  builder: Builder,
  overrides: OverrideWebhooksOptions = {},
): Builder {
  readOptions(OVERRIDES, overrides, 'overrideWebhooks');
  const transport = overrides.transport ?? new InMemoryWebhookTransport();
  return replaceParts(
    builder,
    async (options) => {
      const { clock = options.clock } = overrides;
      return inMemory(await resolveAndCheckExamples({ ...options, clock }), overrides);
    },
    transport,
    overrides.issuerKeys,
  );
}

/**
 * Replaces the options of the application's `WebhookModule`, and everything that sends requests.
 *
 * @param resolve - resolves the options, which name no key set
 * @param keys - verify tokens in place of the key sets of issuers
 * @returns the builder
 * @internal Its parameters need the types of axios, which an application that only receives does not have.
 */
export function replaceParts<Builder extends TestingBuilder>(
  builder: Builder,
  resolve: (
    options: WebhookModuleOptions,
  ) => ResolvedWebhookOptions | Promise<ResolvedWebhookOptions>,
  transport: InMemoryWebhookTransport,
  keys: IssuerTestKeys = {},
): Builder {
  builder.overrideProvider(RESOLVED_OPTIONS).useFactory({
    factory: (options) => {
      requireOptions(options, 'WebhookModule');
      return resolve(withoutKeySets(options, keys));
    },
    inject: [MODULE_OPTIONS_TOKEN],
  });
  builder.overrideProvider(WEBHOOK_HTTP).useValue(transport);
  builder.overrideProvider(EventPoller).useValue({ status: () => [], stop: async () => undefined });
  builder.overrideProvider(OAuthTokens).useValue({ get: async () => ACCESS_TOKEN, close() {} });
  return builder;
}

const ACCESS_TOKEN = 'test-access-token';

type Issuers = WebhookReceiverOptions['issuers'];

/** Replaces the `jwksUri` of issuers with keys, so that a token can be verified without a network. */
function withoutKeySets(
  { receiver, ...options }: WebhookModuleOptions,
  keys: IssuerTestKeys,
): WebhookModuleOptions {
  const local = (issuers: Issuers): Issuers => {
    if (Array.isArray(issuers)) return issuers.map((issuer) => withLocalKeys(issuer, keys));
    if (!isProvider(issuers)) return issuers;
    const { ttl, maxStale } = issuers;
    return {
      ttl,
      maxStale,
      load: async () => local(await issuers.load()),
      refresh: async () => issuers.refresh(),
      subscribe: (reload) => issuers.subscribe(reload),
    } as IssuerProvider;
  };
  // A wrong entry stays as it is, so that it is reported.
  const receive = (one: WebhookReceiverOptions): WebhookReceiverOptions =>
    Object(one) === one ? { ...one, issuers: local(one.issuers) } : one;
  const isList = (value: typeof receiver): value is readonly WebhookReceiverOptions[] =>
    Array.isArray(value);
  return {
    ...options,
    receiver: isList(receiver) ? receiver.map(receive) : receiver && receive(receiver),
  };
}

function isProvider(issuers: Issuers): issuers is IssuerProvider {
  return isObject(issuers) && 'load' in issuers;
}

/** A wrong entry stays as it is, so that it is reported. */
function withLocalKeys(entry: WebhookIssuer, keys: IssuerTestKeys): WebhookIssuer {
  if (!isObject(entry)) return entry;
  const { jwksUri, ...issuer } = entry as WebhookIssuer;
  const all = [...(issuer.keys ?? []), ...(keys[issuer.issuer] ?? [])];
  // An issuer must have a key; no sender has this one.
  const isAlone = jwksUri !== undefined && issuer.secret === undefined && all.length === 0;
  if (isAlone) return { ...issuer, keys: [{ key: randomBytes(32) }] };
  return all.length === 0 ? issuer : { ...issuer, keys: all };
}

/** Replaces the parts of resolved options, so that a problem of the application's own parts is reported. */
function inMemory(
  resolved: ResolvedWebhookOptions,
  { replayStore }: OverrideWebhooksOptions,
): ResolvedWebhookOptions {
  const { receivers, publisher, inbox, clock } = resolved;
  const receive = (one: ResolvedReceiver): ResolvedReceiver => {
    const store = replayStore ?? storeInPlaceOf(one.replayStore, clock);
    const { queued } = one;
    return {
      ...one,
      replayStore: store,
      leases: new LeaseKeeper(store, clock, one.replayLease),
      queued: queued && { ...queued, queue: queueInPlaceOf(queued.queue, clock) },
    };
  };
  return {
    ...resolved,
    inbox: inbox && { ...inbox, store: new MemoryInboxStore() },
    receivers: new Map([...receivers].map(([name, one]) => [name, receive(one)])),
    publisher: publisher && {
      ...publisher,
      queue: queueInPlaceOf(publisher.queue, clock),
      endpointStore: new MemoryEndpointStore(),
    },
  };
}

/** Accepts a transaction if the queue that it replaces does. */
function queueInPlaceOf({ transactional }: WebhookQueue, clock: WebhookClock): InProcessQueue {
  return Object.defineProperty(new InProcessQueue({ clock }), 'transactional', {
    value: transactional,
  });
}

/** Accepts a transaction if the store that it replaces does. */
function storeInPlaceOf({ commitWith }: ReplayStore, clock: WebhookClock): ReplayStore {
  const store = new MemoryReplayStore({ clock });
  if (commitWith === undefined) return store;
  return Object.assign<ReplayStore, Pick<ReplayStore, 'commitWith'>>(store, {
    commitWith: async (_tx, reservation) => store.commit(reservation),
  });
}
