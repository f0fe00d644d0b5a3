/** A value, or a promise of it: HMAC and memory are synchronous, everything else is not. */
export type MaybePromise<T> = T | Promise<T>;

export function isThenable<T>(value: MaybePromise<T>): value is Promise<T> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}

/** Continues with a value, synchronously if it is available: each `await` costs a microtask (benchmark `receive`). */
export function after<T, R>(
  value: MaybePromise<T>,
  onValue: (value: T) => MaybePromise<R>,
): MaybePromise<R> {
  return isThenable(value) ? value.then(onValue) : onValue(value);
}

/** Runs `work` and replaces its failure, thrown or rejected, by the outcome of `onError`. */
export function rescued<T>(
  work: () => MaybePromise<T>,
  onError: (error: unknown) => MaybePromise<T>,
): MaybePromise<T> {
  try {
    const value = work();
    return isThenable(value) ? value.then(undefined, onError) : value;
  } catch (error) {
    return onError(error);
  }
}
