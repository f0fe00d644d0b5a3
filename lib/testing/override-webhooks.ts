import { randomBytes } from 'node:crypto';
import type { LoggerService } from '@nestjs/common';
import type { WebhookClock } from '../clock/webhook-clock.js';
import type { WebhookIssuer } from '../keys/issuer-list.js';
import type { KeyProvider } from '../keys/key-provider.js';
import { readOptions } from '../options/read-options.js';
import { CLOCK, instance, isOptions, object, optional, rule } from '../options/rules.js';
import { InProcessQueue } from '../queue/in-process.queue.js';
import { EventPoller } from '../receiver/event.poller.js';
import type { WebhookReceiverOptions } from '../receiver/receiver-options.js';
import { MemoryReplayStore } from '../replay/memory-replay.store.js';
import type { ReplayReservation, ReplayStore } from '../replay/replay-store.js';
import { WEBHOOK_HTTP } from '../publisher/webhook-http.js';
import { OAuthTokens } from '../sending/oauth-tokens.js';
import { isObject } from '../token/json.js';
import type { WebhookKey } from '../token/keys/key-material.js';
import { MODULE_OPTIONS_TOKEN, RESOLVED_OPTIONS } from '../webhook.module.js';
import type { WebhookModuleOptions } from '../webhook-module-options.interface.js';
import { resolveWebhookOptions } from '../webhook-options.resolver.js';
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
 * stay as they are.
 *
 * ```ts
 * const testing = await overrideWebhooks(Test.createTestingModule({ imports: [AppModule] })).compile();
 * ```
 *
 * - The queue takes part in no transaction: `publish(…, { tx })` records at once, even if the transaction is rolled back.
 * - `event.commit(tx)` records at once too, unless you pass a `replayStore` that joins transactions.
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
    (options) => inMemory(options, overrides),
    transport,
    overrides.issuerKeys,
  );
}

/**
 * Replaces the options of the application's `WebhookModule`, and everything that sends requests.
 *
 * @param keys - verify tokens in place of the key sets of issuers
 * @returns the builder
 */
export function replaceParts<Builder extends TestingBuilder>(
  builder: Builder,
  change: (options: WebhookModuleOptions) => WebhookModuleOptions,
  transport: InMemoryWebhookTransport,
  keys: IssuerTestKeys = {},
): Builder {
  builder.overrideProvider(RESOLVED_OPTIONS).useFactory({
    factory: (options) => resolveWebhookOptions(withoutKeySets(change(options), keys)),
    inject: [MODULE_OPTIONS_TOKEN],
  });
  builder.overrideProvider(WEBHOOK_HTTP).useValue(transport);
  builder.overrideProvider(EventPoller).useValue({ status: () => [] });
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
  const receive = (one: WebhookReceiverOptions): WebhookReceiverOptions => ({
    ...one,
    issuers: local(one.issuers),
  });
  return { ...options, receiver: receiver && [receiver].flat().map(receive) };
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

function inMemory(
  options: WebhookModuleOptions,
  overrides: OverrideWebhooksOptions,
): WebhookModuleOptions {
  const clock = overrides.clock ?? options.clock;
  const { receiver, publisher, inbox } = options;
  const receive = (one: WebhookReceiverOptions): WebhookReceiverOptions => ({
    ...one,
    replay: { ...one.replay, store: overrides.replayStore ?? new TestReplayStore({ clock }) },
    queue: one.acknowledge === 'queued' ? testQueue(clock) : one.queue,
  });
  return {
    ...options,
    clock,
    inbox: inbox && { ...inbox, store: undefined },
    receiver: receiver && [receiver].flat().map(receive),
    publisher: publisher && { ...publisher, queue: testQueue(clock), endpointStore: undefined },
  };
}

/** Accepts a transaction, as the durable queue it replaces may. */
function testQueue(clock: WebhookClock | undefined): InProcessQueue {
  return Object.defineProperty(new InProcessQueue({ clock }), 'transactional', { value: true });
}

/** Accepts a transaction, as the store it replaces may. */
class TestReplayStore extends MemoryReplayStore {
  override async commitWith(_tx: unknown, reservation: ReplayReservation): Promise<boolean> {
    return this.commit(reservation);
  }
}
