import { LastOnes } from '../queue/last-ones.js';
import type { SendResult } from './publish-options.interface.js';

/** Results that are remembered after they were given, so that a repeated `send` gets the same one. */
const MAX_REMEMBERED = 1_000;

interface Expectation {
  readonly result: Promise<SendResult>;
  readonly resolve: (result: SendResult) => void;
  readonly reject: (error: Error) => void;
}

/** Who waits for the first attempt at which delivery, and what came of the last of them. */
export class FirstAttempts {
  private readonly expected = new Map<string, Expectation>();
  private readonly settled = new LastOnes<Promise<SendResult>>(MAX_REMEMBERED);

  /** The result of this delivery, to come or remembered; `undefined` when nobody has asked for it. */
  find(deliveryId: string): Promise<SendResult> | undefined {
    return this.expected.get(deliveryId)?.result ?? this.settled.get(deliveryId);
  }

  /** Begins to wait; to be called before the delivery is recorded, or its attempt could be over already. */
  expect(deliveryId: string): Promise<SendResult> {
    let resolve!: Expectation['resolve'];
    let reject!: Expectation['reject'];
    const result = new Promise<SendResult>((onResult, onError) => {
      resolve = onResult;
      reject = onError;
    });
    // The caller may have stopped waiting by the time it is rejected.
    result.catch(() => {});
    this.expected.set(deliveryId, { result, resolve, reject });
    return result;
  }

  /** Whether somebody waits for it still. */
  awaits(deliveryId: string): boolean {
    return this.expected.has(deliveryId);
  }

  settle(deliveryId: string, makeResult: () => SendResult): void {
    const expectation = this.expected.get(deliveryId);
    if (expectation === undefined) return;
    this.expected.delete(deliveryId);
    expectation.resolve(makeResult());
    this.settled.set(deliveryId, expectation.result);
  }

  fail(deliveryId: string, error: Error): void {
    this.expected.get(deliveryId)?.reject(error);
    this.expected.delete(deliveryId);
  }

  failAll(makeError: () => Error): void {
    for (const { reject } of this.expected.values()) reject(makeError());
    this.expected.clear();
  }
}
