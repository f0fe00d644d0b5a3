import { WebhookDeliveryError } from '../errors/webhook.error.js';
import { unknownOption } from './option-names.js';
import { isOptions, isPlain } from './rules.js';

/**
 * How a member is checked: by a function that returns what is wrong with its value; or `'optional'` for a member that the caller
 * checks and that may be `undefined`.
 */
type MemberCheck = ((value: unknown) => string | undefined) | 'optional';

/**
 * Reads an object whose members narrow what a call sees or changes: a scope, a filter, the options beside them.
 *
 * Whatever could silently widen the call is refused: a misspelt member, a member that is `undefined`, and a value that is no
 * options object, such as a string, an array or a Map. Getters of a class count as members.
 *
 * @param argument - the argument's name, for messages
 * @returns the members that were passed
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function readStrictly<Name extends string>(
  given: unknown,
  argument: string,
  checks: Readonly<Record<Name, MemberCheck>>,
): { readonly [Member in Name]?: unknown } {
  const names = Object.keys(checks) as Name[];
  if (!isOptions(given) || !(isPlain(given) || names.some((name) => name in given))) {
    throw invalidOption(`${argument}: must be an object with ${names.join(', ')}`);
  }
  const unknown = namesOf(given).find((name) => !Object.hasOwn(checks, name));
  if (unknown !== undefined) {
    throw invalidOption(`${argument}${pathOf(unknown)}: ${unknownOption(unknown, names)}`);
  }
  const members: { [Member in Name]?: unknown } = {};
  for (const name of names) {
    if (!(name in given)) continue;
    const value = (given as Record<Name, unknown>)[name];
    const fault = faultOf(value, checks[name]);
    if (fault !== undefined) throw invalidOption(`${argument}.${name}: ${fault}`);
    members[name] = value;
  }
  return members;
}

/** An error whose message is one sentence. */
export function invalidOption(message: string): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'invalid_option',
    /[.?]$/.test(message) ? message : `${message}.`,
  );
}

/** Enumerable names, inherited ones included. */
function namesOf(given: object): string[] {
  const names: string[] = [];
  for (const name in given) names.push(name);
  return names;
}

function faultOf(value: unknown, check: MemberCheck): string | undefined {
  if (check === 'optional') return undefined;
  if (value !== undefined) return check(value);
  return 'is undefined, which is most often a mistake; leave it out to see everything';
}

/** A stranger may have chosen the name: the message stays short, and on one line. */
function pathOf(name: string): string {
  return /^\w{1,40}$/.test(name) ? `.${name}` : `[${JSON.stringify(name.slice(0, 40))}]`;
}
