import type { OnApplicationBootstrap } from '@nestjs/common';
import type { DiscoveryService, ModulesContainer } from '@nestjs/core';
import { WebhookConfigurationError, WebhookDeliveryError } from '../errors/webhook.error.js';
import { hasMethods } from '../options/rules.js';
import type { ResolvedPublisherOptions } from './publisher-options.resolver.js';
import { PublisherLog } from '../signing/publisher-log.js';

type Wrapper = ReturnType<DiscoveryService['getProviders']>[number];

/** The part of a TransactionHost of @nestjs-cls/transactional that is used here. */
interface TransactionHostLike {
  readonly tx: unknown;
  isTransactionActive(): boolean;
}

/** The documented methods of a host: the application may have a class of the same name. */
const HOST_METHODS = ['withTransaction', 'withoutTransaction', 'isTransactionActive'];

/** `TransactionHost`, and for a named connection `TransactionHost_name`. */
const HOST_TOKEN = /^TransactionHost(?:_(.+))?$/;

/**
 * Chooses the transaction that an event is recorded in: the current one if the application uses `@nestjs-cls/transactional`.
 *
 * Its hosts are found among the providers by their token and their methods. Without an import, the package stays optional, and
 * a second copy of it is never used by mistake.
 */
export class PublishTransaction implements OnApplicationBootstrap {
  private readonly log = new PublisherLog();
  private candidates: readonly (readonly [string | undefined, Wrapper])[] = [];
  private knownModules = 0;
  // Not printed with the publisher: the container has the options of the application, with their secrets.
  readonly #discovery: DiscoveryService;
  readonly #modules: Pick<ModulesContainer, 'size'>;

  constructor(
    private readonly options: Pick<ResolvedPublisherOptions, 'queue' | 'transactionHost'>,
    discovery: DiscoveryService,
    modules: Pick<ModulesContainer, 'size'>,
  ) {
    this.#discovery = discovery;
    this.#modules = modules;
  }

  /** @hidden */
  onApplicationBootstrap(): void {
    const { transactionHost } = this.options;
    if (typeof transactionHost !== 'string' || this.findHosts().has(transactionHost)) return;
    throw new WebhookConfigurationError([
      {
        path: 'publisher.transactionHost',
        message: `no ClsPluginTransactional has the connectionName '${transactionHost}': register one, or correct the name`,
      },
    ]);
  }

  /**
   * Chooses the transaction to record an event in: the one that the caller passed, or else the current one.
   *
   * @param tx - `undefined` for the current one, `false` for none
   * @throws {@link WebhookDeliveryError} `unsupported_option` if the queue cannot join it, or if several hosts have one
   */
  choose(tx: unknown): { readonly tx: unknown; readonly isCurrent: boolean } {
    if (tx === undefined) {
      const current = this.find();
      return { tx: current, isCurrent: current !== undefined };
    }
    if (tx === false) return { tx: undefined, isCurrent: false };
    if (this.options.queue.transactional) return { tx, isCurrent: false };
    throw new WebhookDeliveryError(
      'unsupported_option',
      'The queue cannot join a transaction; leave tx out, or use a transactional queue.',
    );
  }

  /** The open transaction; `undefined` if there is none to join. */
  private find(): unknown {
    const { queue, transactionHost } = this.options;
    if (transactionHost === false) return undefined;
    const host = this.chosen(this.findHosts());
    if (host === undefined) return undefined;
    if (queue.transactional) return host.tx;
    this.log.once(
      'warn',
      'transaction',
      () =>
        'An event was published within a transaction that the queue cannot join: it is sent even if the transaction is rolled back. ' +
        'Publish after the commit, or use a transactional queue. Pass tx: false if this is intended.',
    );
    return undefined;
  }

  private chosen(hosts: ReadonlyMap<string | undefined, Wrapper>): TransactionHostLike | undefined {
    const { transactionHost } = this.options;
    const active = [...hosts].flatMap(activeHost);
    if (typeof transactionHost === 'string' || hosts.has(undefined) || hosts.size < 2) {
      const [only] = hosts.keys();
      const name = transactionHost || (hosts.has(undefined) ? undefined : only);
      return active.find(([known]) => known === name)?.[1];
    }
    if (active.length === 0) return undefined;
    throw new WebhookDeliveryError(
      'unsupported_option',
      'A transaction of @nestjs-cls/transactional is open, and several connections are registered: set publisher.transactionHost ' +
        "to the one of the queue's database, or pass tx, or tx: false, to the call.",
    );
  }

  /** Modules are added during start-up, and lazy ones later. */
  private findHosts(): ReadonlyMap<string | undefined, Wrapper> {
    if (this.#modules.size !== this.knownModules) {
      this.knownModules = this.#modules.size;
      this.candidates = this.#discovery.getProviders().flatMap(namedHost);
    }
    return new Map(
      this.candidates.filter(([, { instance }]) => hasMethods(instance, HOST_METHODS)),
    );
  }
}

/** Explains the error for a transaction that the caller did not pass explicitly. */
export function cannotJoin(cause: unknown): WebhookDeliveryError {
  const { message } = cause as Error;
  return new WebhookDeliveryError(
    'unsupported_option',
    `The current transaction of @nestjs-cls/transactional cannot be joined: ${message} If its database is not the queue's, ` +
      'set publisher.transactionHost to another connection or to false.',
    { cause },
  );
}

function namedHost(wrapper: Wrapper): [string | undefined, Wrapper][] {
  const { token } = wrapper;
  const text = typeof token === 'symbol' ? token.description : (token as { name?: unknown }).name;
  const match = HOST_TOKEN.exec(String(text));
  return match === null ? [] : [[match[1], wrapper]];
}

function activeHost([name, { instance }]: [string | undefined, Wrapper]): [
  string | undefined,
  TransactionHostLike,
][] {
  const host = (instance ?? {}) as TransactionHostLike;
  // Before its constructor has run, Nest holds an empty object of its class.
  const isBuilt = Object.keys(host).length > 0;
  return isBuilt && host.isTransactionActive() ? [[name, host]] : [];
}
