import { Inject, Injectable, Logger, type OnApplicationBootstrap } from '@nestjs/common';
import { parseRetryAfter } from '../clock/retry-after.js';
import type { CancelWake } from '../clock/webhook-clock.js';
import { errorName, isWebhookError, quietly } from '../errors/webhook.error.js';
import type {
  EventPoll,
  FetchedEvents,
  IncomingWebhook,
  SenderAnswer,
} from '../request/webhook-scheme.js';
import { ReceivePipeline } from './receive.js';
import { WEBHOOK_RECEIVERS } from './receiver.constants.js';
import { ReceiverDrain } from './receiver.drain.js';
import type { ResolvedReceiver, ResolvedReceivers } from './receiver-options.resolver.js';

/** Milliseconds until the next request after a failure; each wait is twice as long as the one before. */
const SHORTEST_WAIT = 1_000;
const LONGEST_WAIT = 60_000;
/** The longest wait that a sender can ask for. */
const LONGEST_RETRY_AFTER = 3_600_000;
/** Milliseconds that the last report at shutdown may take. */
const LAST_REPORT = 5_000;

export interface PollStatus {
  readonly receiver: string;
  /** Of the sender. */
  readonly host: string;
  /** Absent if the last request succeeded, or there was none. */
  readonly failing?:
    | {
        /** The first failure in a row. */
        readonly since: Date;
        readonly durationMs: number;
        /** Of the last failure; it contains no address, and nothing of the answer. */
        readonly reason: string;
      }
    | undefined;
}

/** Fetches the events of senders that wait to be asked. Every process does so; the replay store recognises what another one has. */
@Injectable()
export class EventPoller implements OnApplicationBootstrap {
  private readonly streams: readonly PolledStream[];
  /** Keeps a process alive that only polls: no other timer of this package does. */
  private alive: NodeJS.Timeout | undefined;

  constructor(
    @Inject(WEBHOOK_RECEIVERS) receivers: ResolvedReceivers,
    pipeline: ReceivePipeline,
    drain: ReceiverDrain,
  ) {
    this.streams = [...receivers.values()].flatMap((receiver) => {
      const { poll } = receiver.scheme;
      return poll === undefined ? [] : [new PolledStream(receiver, poll, pipeline, drain)];
    });
  }

  status(): readonly PollStatus[] {
    return this.streams.map((stream) => stream.status());
  }

  onApplicationBootstrap(): void {
    if (this.streams.length > 0) this.alive = setInterval(() => undefined, LONGEST_WAIT);
    for (const stream of this.streams) stream.start();
  }

  /** Fetches nothing more. @returns once what was fetched is handled and reported */
  async stop(): Promise<void> {
    clearInterval(this.alive);
    await Promise.all(this.streams.map(async (stream) => stream.stop()));
  }
}

interface PollOutage {
  /** Epoch milliseconds. */
  readonly since: number;
  /** For the log. */
  readonly line: string;
  readonly reason: string;
}

/** The stream of one receiver: ask, receive each event, and report them with the next request. */
class PolledStream {
  private readonly logger = new Logger('WebhookReceiver');
  /** By id, until the sender knows. */
  private readonly settled = new Map<string, SenderAnswer>();
  private running: Promise<void> | undefined;
  private isStopped = false;
  /** Ends the request or the pause that is under way. */
  private interrupt: () => void = () => undefined;
  private failures = 0;
  private outage: PollOutage | undefined;

  constructor(
    private readonly receiver: ResolvedReceiver,
    private readonly poll: EventPoll,
    private readonly pipeline: ReceivePipeline,
    private readonly drain: ReceiverDrain,
  ) {}

  start(): void {
    this.running ??= this.run();
  }

  status(): PollStatus {
    const { name, clock } = this.receiver;
    const failing = this.outage && {
      since: new Date(this.outage.since),
      durationMs: clock.now() - this.outage.since,
      reason: this.outage.reason,
    };
    return { receiver: name, host: new URL(this.poll.url).host, failing };
  }

  /** Ends a request that waits, lets a running handler end, and reports what was settled. */
  async stop(): Promise<void> {
    this.isStopped = true;
    this.interrupt();
    await this.running;
  }

  private async run(): Promise<void> {
    const { clock } = this.receiver;
    while (!this.isStopped) await this.sleepUntil(await this.round(clock.now()));
    if (this.settled.size === 0) return;
    // If it fails, the sender returns the events again, and they are duplicates.
    await this.ask(LAST_REPORT, true).catch(() => undefined);
  }

  /** @returns when the next round begins */
  private async round(startedAt: number): Promise<number> {
    const { clock } = this.receiver;
    let fetched: FetchedEvents;
    try {
      fetched = await this.ask(this.poll.timeout, false);
    } catch (error) {
      return this.isStopped ? startedAt : clock.now() + this.failed(error);
    }
    this.settled.clear();
    const { handled, refusal } = await this.receiveAll(fetched);
    const hasUnsettled = this.settled.size < fetched.size;
    const isStuck = hasUnsettled && this.settled.size === 0;
    if (isStuck && refusal !== undefined) return clock.now() + this.failed(new Error(refusal));
    this.recovered();
    // Otherwise an event whose handler fails would be fetched again at once.
    if (isStuck) return clock.now() + this.backOff();
    this.failures = 0;
    // A sender that repeats itself must not keep this process busy, even if it claims to have more.
    const wait = hasUnsettled || handled === 0 ? this.poll.interval : 0;
    // The clock may have been set back meanwhile.
    return Math.min(startedAt, clock.now()) + wait;
  }

  /**
   * Those that are not settled stay with the sender.
   *
   * @returns how many events are newly handled or queued, and why one that stays was refused
   */
  private async receiveAll(
    events: FetchedEvents,
  ): Promise<{ readonly handled: number; readonly refusal: string | undefined }> {
    let handled = 0;
    let refusal: string | undefined;
    // One after the other, in the order of the sender.
    for (const [id, incoming] of events) {
      if (this.isStopped) break;
      const { own, answer } = await this.take(incoming);
      if (answer.situation === 'processed' || answer.situation === 'queued') handled++;
      if (own !== undefined) this.settled.set(id, own);
      else if (answer.status === 401)
        refusal = `none of the fetched events is accepted (${answer.problem?.code})`;
    }
    return { handled, refusal };
  }

  private async take(incoming: IncomingWebhook): ReturnType<ReceivePipeline['answerOf']> {
    const head = { method: incoming.method, url: this.poll.url, headers: {}, rawHeaders: [] };
    this.drain.enter();
    try {
      return await this.pipeline.answerOf(incoming, head, this.receiver);
    } finally {
      this.drain.leave();
    }
  }

  private async ask(timeout: number, last: boolean): Promise<FetchedEvents> {
    const { clock } = this.receiver;
    const controller = new AbortController();
    const abort = (): void => controller.abort();
    const cancel = clock.wakeAt(clock.now() + timeout, abort);
    this.interrupt = abort;
    try {
      return await this.poll.fetch(this.settled, { signal: controller.signal, last });
    } finally {
      cancel();
    }
  }

  private failed(error: unknown): number {
    const { message, cause, retryAfter } = error as Partial<Error> & { retryAfter?: string };
    const { name, clock } = this.receiver;
    const line = message ?? errorName(error);
    if (line !== this.outage?.line) {
      quietly(() =>
        this.logger.error(
          `Receiver "${name}" cannot fetch events from ${this.poll.url}: ${line}. It tries again; no event is lost`,
        ),
      );
    }
    const { since } = this.outage ?? { since: clock.now() };
    // The message of an error of this package may contain an address.
    this.outage = { since, line, reason: isWebhookError(cause) ? cause.code : line };
    const asked = parseRetryAfter(retryAfter, clock.now()) ?? 0;
    return Math.max(this.backOff(), Math.min(asked, LONGEST_RETRY_AFTER));
  }

  private recovered(): void {
    if (this.outage === undefined) return;
    this.outage = undefined;
    this.failures = 0;
    quietly(() => this.logger.log(`Receiver "${this.receiver.name}" fetches events again`));
  }

  /** With jitter, so that processes that failed together do not ask together. */
  private backOff(): number {
    const wait = Math.min(SHORTEST_WAIT * 2 ** this.failures++, LONGEST_WAIT);
    return Math.round(wait * (0.8 + 0.2 * Math.random()));
  }

  private async sleepUntil(at: number): Promise<void> {
    const { clock } = this.receiver;
    if (at <= clock.now() || this.isStopped) return;
    let cancel: CancelWake = () => undefined;
    await new Promise<void>((resolve) => {
      cancel = clock.wakeAt(at, resolve);
      this.interrupt = resolve;
    });
    cancel();
  }
}
