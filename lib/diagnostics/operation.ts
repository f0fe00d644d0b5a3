import { type Channel, channel } from 'node:diagnostics_channel';

/** The trace context of a span (W3C Trace Context), as it is stored with a delivery and sent in headers. */
export interface TraceContext {
  readonly traceparent: string;
  readonly tracestate?: string;
  /** The id of the span's parent: attempts become its siblings. */
  readonly parentId?: string;
}

/** What a tracer adds to an operation. No method throws an error of its own. */
export interface OperationTracer<Outcome> {
  /** The operation's own context: stored with deliveries, or sent with a request. */
  readonly trace: TraceContext | undefined;
  /** Runs a part of the operation in its context. */
  run<T>(work: () => T): T;
  /** Sends the request that the operation's span stands for, so that an instrumented HTTP client adds no second span. */
  send<T>(request: () => T): T;
  end(outcome: Outcome & Ended): void;
}

/** What every message of a finished operation has. */
interface Ended {
  /** Milliseconds the operation took. */
  readonly durationMs: number;
}

/** What an attempt needs of its operation. */
export type RequestTracing = Pick<Operation<object, object>, 'trace' | 'send'>;

/** An operation under way. The start channel publishes it, so that a tracer can attach itself. */
export class Operation<Facts extends object, Outcome extends object> {
  /** Set by a subscriber of the start channel. */
  tracer: OperationTracer<Outcome> | undefined;
  private isEnded = false;

  /** @param startedAt - by `performance.now()` */
  constructor(
    readonly facts: Facts,
    readonly startedAt: number,
    private readonly finished: Channel,
  ) {}

  get trace(): TraceContext | undefined {
    return this.tracer?.trace;
  }

  run<T>(work: () => T): T {
    return this.tracer === undefined ? work() : this.tracer.run(work);
  }

  send<T>(request: () => T): T {
    return this.tracer === undefined ? request() : this.tracer.send(request);
  }

  /** Publishes facts and outcome as one message. Only the first call has an effect. */
  end(outcome: Outcome): void {
    if (this.isEnded) return;
    this.isEnded = true;
    const ended = { ...outcome, durationMs: performance.now() - this.startedAt };
    this.tracer?.end(ended);
    if (this.finished.hasSubscribers) this.finished.publish({ ...this.facts, ...ended });
  }
}

/**
 * A kind of operation: one channel publishes each {@link Operation} when it starts, for tracers, and another one publishes its facts
 * when it has ended. Without a subscriber, no operation is created.
 */
export class OperationChannels<Facts extends object, Outcome extends object> {
  private readonly started: Channel;
  private readonly finished: Channel;

  constructor(
    readonly startName: string,
    endName: string,
  ) {
    this.started = channel(startName);
    this.finished = channel(endName);
  }

  get isObserved(): boolean {
    return this.started.hasSubscribers || this.finished.hasSubscribers;
  }

  /** The start time of an operation whose facts are known later; `undefined` without a subscriber. */
  now(): number | undefined {
    return this.isObserved ? performance.now() : undefined;
  }

  /** @param startedAt - of {@link now}; default: now */
  begin(makeFacts: () => Facts, startedAt?: number): Operation<Facts, Outcome> | undefined {
    if (!this.isObserved) return undefined;
    const operation = new Operation<Facts, Outcome>(
      makeFacts(),
      startedAt ?? performance.now(),
      this.finished,
    );
    if (this.started.hasSubscribers) this.started.publish(operation);
    return operation;
  }

  /** Observes work from its start to its end; `work` gets the operation, or `undefined` without a subscriber. */
  async observe<T>(
    makeFacts: () => Facts,
    work: (operation: Operation<Facts, Outcome> | undefined) => T | Promise<T>,
    outcome: { readonly of: (result: T) => Outcome; readonly failed: (error: unknown) => Outcome },
  ): Promise<T> {
    const operation = this.begin(makeFacts);
    if (operation === undefined) return await work(undefined);
    try {
      const result = await operation.run(() => work(operation));
      operation.end(outcome.of(result));
      return result;
    } catch (error) {
      operation.end(outcome.failed(error));
      throw error;
    }
  }
}
