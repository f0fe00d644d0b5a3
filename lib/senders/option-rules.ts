import { either, list, required, rule, type Rule } from '../options/rules.js';
import { WEBHOOK_PROFILES } from '../token/webhook-token.constants.js';

/** One value or a list of them, read as a list. */
function oneOrMore<T>(holds: (value: unknown) => boolean): Rule<readonly T[]> {
  return either(
    Array.isArray,
    list(
      required(rule<T>(holds, 'must be a non-empty string; is the environment variable set?')),
      'must have at least one secret',
      { min: 1 },
    ),
    (value, at, name) => [
      rule<T>(holds, 'must be a non-empty string or a list of them')(value, at, name),
    ],
  );
}

export const SECRETS = oneOrMore<string>(isText);

/** As {@link SECRETS}, also as bytes. */
export const KEYS = oneOrMore<string | Uint8Array>(
  (value) => isText(value) || (value instanceof Uint8Array && value.length > 0),
);

function isText(value: unknown): boolean {
  return typeof value === 'string' && value !== '';
}

/** One name or a list of them. */
export const NAMES = SECRETS;

/** One value of a header or a list of them. */
export const HEADER_VALUES: Rule<readonly string[]> = (value, at, name) => {
  const values = SECRETS(value, at, name);
  at.require(
    at.has(name) || values.every((one) => /^[\x21-\x7E]+(?: +[\x21-\x7E]+)*$/.test(one)),
    name,
    'must be visible ASCII without white space at either end, or no header matches it; trim the environment variable',
  );
  return values;
};

export const NAME: Rule<string> = rule(
  (value) =>
    typeof value === 'string' &&
    /^[\w.-]{1,64}$/.test(value) &&
    !(WEBHOOK_PROFILES as readonly string[]).includes(value),
  "must be a name of its own, of letters, digits, '.', '_' and '-'",
);

/** Visible ASCII in lower case, as `headers.get()` needs it. */
export const HEADER_NAME: Rule<string> = rule(
  (value) => typeof value === 'string' && /^[a-z0-9_-]+$/.test(value),
  "must be the name of a header in lower case, such as 'x-signature'",
);

export const HEADER_NAMES = list(HEADER_NAME, "must be a list of names: ['x-shop']");
