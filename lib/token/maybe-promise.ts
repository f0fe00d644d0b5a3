/** A value, or a promise of it: HMAC and memory are synchronous, everything else is not. */
export type MaybePromise<T> = T | Promise<T>;

export function isThenable<T>(value: MaybePromise<T>): value is Promise<T> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}

/** Goes on with a value, at once where it is here: each await costs a turn, and its garbage (benchmark `receive`). */
export function after<T, R>(
  value: MaybePromise<T>,
  goOn: (value: T) => MaybePromise<R>,
): MaybePromise<R> {
  return isThenable(value) ? value.then(goOn) : goOn(value);
}

/** Does work that may fail at once or later; either way `failed` says what comes of it. */
export function rescued<T>(
  work: () => MaybePromise<T>,
  failed: (error: unknown) => MaybePromise<T>,
): MaybePromise<T> {
  try {
    const value = work();
    return isThenable(value) ? value.then(undefined, failed) : value;
  } catch (error) {
    return failed(error);
  }
}
