/** A value, or a promise of it: HMAC and memory are synchronous, everything else is not. */
export type MaybePromise<T> = T | Promise<T>;

function isThenable<T>(value: MaybePromise<T>): value is Promise<T> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}

/** Continues with a value, synchronously if it is available: each `await` costs a microtask (benchmark `receive`). */
export function after<T, R>(
  value: MaybePromise<T>,
  onValue: (value: T) => MaybePromise<R>,
): MaybePromise<R> {
  return isThenable(value) ? value.then(onValue) : onValue(value);
}
