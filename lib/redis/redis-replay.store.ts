import { createHash, randomUUID } from 'node:crypto';
import { inTime, SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import type { Duration } from '../clock/duration.js';
import { Problems } from '../options/problems.js';
import { readOptions } from '../options/read-options.js';
import { CLOCK, duration, object, optional, rule } from '../options/rules.js';
import type { WebhookStoreError } from '../errors/webhook.error.js';
import { redisFailure, ReplicaExit } from './redis-failure.js';
import { LostReservations } from '../replay/lost-reservations.js';
import {
  ReplayStore,
  type ReplayClaim,
  type ReplayReservation,
  type ReplayVerdict,
} from '../replay/replay-store.js';
import {
  evictionPolicy,
  isRedisClient,
  reconnect,
  timeoutAdvice,
  type RedisClient,
  CHECK,
  COMMIT,
  EXTEND,
  RELEASE,
  RESERVE,
  type RedisScript,
} from './redis-script.js';

/** Keys and timeout of a {@link RedisReplayStore}. */
export interface RedisReplayStoreOptions {
  /** Prefix of every key; default `webhook-replay`. Applications that share a server need different ones. */
  readonly prefix?: string | undefined;
  /** How long a command may take before the webhook is rejected with `503`; default `'2s'`. */
  readonly timeout?: Duration | undefined;
  /** Default: the system clock. Entries expire by the clock of the server. */
  readonly clock?: WebhookClock | undefined;
}

const OPTIONS = object<RedisReplayStoreOptions>()({
  prefix: optional(
    rule<string>(
      (value) => typeof value === 'string' && /^[^\s{}]{1,64}$/.test(value),
      'must be 1 to 64 characters without white space and braces',
    ),
    'webhook-replay',
  ),
  timeout: optional(duration({ isTimeout: true }), 2_000),
  clock: optional(CLOCK),
});

/**
 * Remembers events in Redis, for any number of processes.
 *
 * Each operation is one Lua script and therefore atomic. Entries expire by themselves.
 * Set `maxmemory-policy` to `noeviction`: a server that evicts forgets handled events when it is full, and
 * duplicates of them are handled again; the store warns about it. While the server is full or unavailable, webhooks are rejected with
 * `503` and sent again later.
 *
 * A command that gets no answer in time replaces the connection, since a host that vanishes ends none. Set `socketTimeout`
 * of the client too, for the commands of your application.
 *
 * All keys of an issuer are in one slot of a cluster. An event takes about 220 bytes, 450 with a `txn`.
 *
 * ```ts
 * replay: { store: new RedisReplayStore(new Redis({ enableOfflineQueue: false, socketTimeout: 5_000 })) }
 * ```
 */
export class RedisReplayStore extends ReplayStore {
  override readonly scope = 'shared';

  private readonly prefix: string;
  private readonly timeout: number;
  private readonly clock: WebhookClock;
  private readonly lost: LostReservations;
  private readonly replicaExit: ReplicaExit;
  private hasWarned = false;
  private hasAskedForPolicy = false;
  /** How often the connection was replaced. */
  private replacements = 0;

  /**
   * @param client - of ioredis, or of node-redis and connected; closed by the application
   * @throws {@link WebhookConfigurationError} for an invalid client or option
   */
  constructor(
    private readonly client: RedisClient,
    options?: RedisReplayStoreOptions,
  ) {
    super();
    const problems = new Problems('RedisReplayStore');
    problems.require(isRedisClient(client), 'client', 'must be a client of ioredis or node-redis');
    const { prefix, timeout, clock } = readOptions(OPTIONS, options, problems);
    this.prefix = prefix;
    this.timeout = timeout;
    this.clock = clock ?? new SystemClock();
    this.lost = new LostReservations(async (reservation) => this.release(reservation), this.clock);
    this.replicaExit = new ReplicaExit(this.clock, () => reconnect(this.client));
  }

  /**
   * Writes a key that expires: a replica and a full server refuse it. Warns about a client that keeps or never replaces a lost connection,
   * and about a server that evicts keys.
   */
  override async check(): Promise<void> {
    const advice = timeoutAdvice(this.client, '5_000');
    if (advice !== undefined && !this.hasWarned) {
      this.hasWarned = true;
      process.emitWarning(`The Redis client of RedisReplayStore ${advice}`, {
        code: 'WEBHOOK_REDIS_NO_TIMEOUT',
      });
    }
    await this.run(CHECK, [`${this.prefix}:check`], []);
    await this.warnOfEviction();
  }

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    const now = this.clock.now();
    const owner = randomUUID();
    const [event, token] = this.keys(claim);
    const keep = Math.max(claim.replayUntil, claim.keepUntil) - now;
    const [status, remaining] = (await this.run(
      RESERVE,
      [event, token, this.key(claim, 'event', claim.tokenKey)],
      [claim.fingerprint, owner, wholeMs(claim.lease), wholeMs(keep)],
    ).catch((error: unknown) => {
      this.lost.add({ claim, owner });
      throw error;
    })) as [ReplayVerdict['status'], number?];
    switch (status) {
      case 'reserved':
        return { status, reservation: { claim, owner } };
      case 'in-progress':
        return { status, retryAt: now + Math.max(1, remaining ?? 0) };
      case 'done':
      case 'conflict':
        return { status };
    }
  }

  override async extend({ claim, owner }: ReplayReservation): Promise<boolean> {
    return this.change(EXTEND, claim, [owner, wholeMs(claim.lease)]);
  }

  override async commit({ claim, owner }: ReplayReservation): Promise<boolean> {
    return this.change(COMMIT, claim, [owner]);
  }

  override async release({ claim, owner }: ReplayReservation): Promise<boolean> {
    return this.change(RELEASE, claim, [owner]);
  }

  private async warnOfEviction(): Promise<void> {
    if (this.hasAskedForPolicy) return;
    this.hasAskedForPolicy = true;
    // Both libraries have this method; another client may not.
    const client = this.client as { info?(): Promise<string> };
    const ask = async (): Promise<string | undefined> => client.info?.();
    const asked = inTime(this.clock, this.timeout, ask, () => new Error('no answer'));
    // A managed server may not allow INFO.
    const info = await asked.catch(() => undefined);
    const policy = evictionPolicy(info ?? '');
    if (policy === undefined) return;
    process.emitWarning(
      `Redis can forget handled webhooks: its maxmemory-policy is ${policy}, so a full server deletes entries of RedisReplayStore, and duplicates are handled again; set "maxmemory-policy noeviction".`,
      { code: 'WEBHOOK_REPLAY_MAY_FORGET' },
    );
  }

  private async change(
    script: RedisScript,
    claim: ReplayClaim,
    values: string[],
  ): Promise<boolean> {
    return (await this.run(script, [...this.keys(claim)], values)) === 1;
  }

  private keys(claim: ReplayClaim): readonly [event: string, token: string] {
    return [this.key(claim, 'event', claim.key), this.key(claim, 'token', claim.tokenKey)];
  }

  /** The braces put an issuer's keys into one slot, as a script with several keys needs in a cluster. */
  private key({ issuer }: ReplayClaim, kind: 'event' | 'token', id: string): string {
    const slot = createHash('sha256').update(issuer).digest('base64url').slice(0, 16);
    return `${this.prefix}:{${slot}}:${kind}:${id}`;
  }

  /** Limits the time: a client may wait for its server without end, but the sender needs an answer. */
  private async run(script: RedisScript, keys: string[], values: string[]): Promise<unknown> {
    const ask = async (): Promise<unknown> => {
      try {
        return await script.run(this.client, keys, values);
      } catch (cause) {
        this.replicaExit.after(cause);
        throw this.failure(cause);
      }
    };
    const { replacements } = this;
    return inTime(this.clock, this.timeout, ask, () => {
      // A command from before a replacement says nothing about the new connection.
      if (replacements === this.replacements) {
        this.replacements++;
        reconnect(this.client);
      }
      return this.failure(new Error('no answer'));
    });
  }

  private failure(cause: unknown): WebhookStoreError {
    return redisFailure('The replay store', this.client, cause);
  }
}

function wholeMs(ms: number): string {
  return String(Math.max(1, Math.ceil(ms)));
}
