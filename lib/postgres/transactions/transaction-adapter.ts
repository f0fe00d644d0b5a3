import type { Db } from 'pg-boss';
import { WebhookDeliveryError } from '../../errors/webhook.error.js';

/** One library whose transactions can be joined. */
export interface TransactionAdapter {
  /** How to say it to somebody who has given something else. */
  readonly name: string;
  /**
   * @returns the transaction as pg-boss wants it, or `undefined` for what comes from another library
   * @throws {@link WebhookDeliveryError} `unsupported_option` for a client of this library on which no transaction is open
   */
  join(tx: object): Db | undefined;
}

/** For a client that would write at once, whatever becomes of the caller's transaction. */
export function noTransaction(what: string, remedy: string): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'unsupported_option',
    `tx is ${what}, and no transaction is open on it: ${remedy}.`,
  );
}

/** Tells whether a value has all these methods. */
export function hasMethods<Name extends string>(
  value: object,
  ...names: readonly Name[]
): value is Record<Name, (...args: never[]) => unknown> {
  return names.every((name) => typeof (value as Record<string, unknown>)[name] === 'function');
}
