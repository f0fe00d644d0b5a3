import { isOptions, type OptionRule, type OptionShape } from '../options/option-shape.js';
import { identifierRule, isIdentifier } from '../token/identifier.js';
import { ENDPOINT_ID_RULE, isEndpointId } from './endpoint-id.js';
import type {
  EndpointChanges,
  EndpointSettings,
  NewEndpoint,
} from './webhook-endpoint.interface.js';

const MAX_URL_LENGTH = 2_048;
const MAX_PATTERNS = 1_000;
const MAX_TEXT_LENGTH = 1_024;
const MAX_NOTES = 50;

const TEXT_RULE = `a text of at most ${MAX_TEXT_LENGTH} characters without NUL and lone surrogates`;

/** Settings of an endpoint; whoever lays them over the publisher's checks the rest. */
export const SETTINGS: OptionShape<EndpointSettings> = {
  method: undefined,
  profile: undefined,
  hash: undefined,
  jti: undefined,
  timeout: undefined,
  headers: { holds: isOptions, message: 'must be an object: { name: value }' },
  audience: undefined,
  subject: undefined,
};

const URL_RULE: OptionRule = {
  holds: (value) => typeof value === 'string' && value.length <= MAX_URL_LENGTH,
  message: `must be a text of at most ${MAX_URL_LENGTH} characters`,
};

const EVENTS_RULE: OptionRule = {
  holds: (value) => !Array.isArray(value) || value.length <= MAX_PATTERNS,
  message: `must be at most ${MAX_PATTERNS} names or patterns`,
};

const TEXTS: OptionShape<Pick<NewEndpoint, 'description' | 'metadata'>> = {
  description: { holds: isText, message: `must be ${TEXT_RULE}` },
  metadata: {
    holds: isMetadata,
    message: `must be an object of at most ${MAX_NOTES} members: each ${TEXT_RULE}, under a name of at most 255`,
  },
};

/** What describes an endpoint to create. */
export const NEW_ENDPOINT: OptionShape<NewEndpoint> = {
  id: { holds: isEndpointId, message: ENDPOINT_ID_RULE },
  url: URL_RULE,
  events: EVENTS_RULE,
  tenant: { holds: isIdentifier, message: identifierRule('tenant') },
  ...TEXTS,
  secret: { holds: (value) => typeof value === 'string', message: 'must be a text' },
  signing: {
    holds: (value) => value === 'secret' || value === 'publisher',
    message: "must be 'secret' or 'publisher'",
  },
  ...SETTINGS,
};

/** What describes a change of one. */
export const ENDPOINT_CHANGES: OptionShape<EndpointChanges> = {
  url: URL_RULE,
  events: EVENTS_RULE,
  ...TEXTS,
  ...SETTINGS,
};

/** Members of an endpoint that no update changes, and what does. */
export const FIXED: Readonly<Record<string, string>> = {
  id: 'never changes: create another endpoint',
  tenant: 'never changes: create an endpoint for the other tenant',
  secret: 'is replaced by rotateKey, with time for the receiver to learn the new one',
  signing: 'never changes: create another endpoint',
  disabled: 'is changed by disable and enable',
};

/** What an update may take away. */
export const REMOVABLE: readonly string[] = [...Object.keys(TEXTS), ...Object.keys(SETTINGS)];

function isText(value: unknown): value is string {
  return typeof value === 'string' && value.length <= MAX_TEXT_LENGTH && !/[\0\p{Cs}]/u.test(value);
}

function isMetadata(value: unknown): boolean {
  if (!isOptions(value)) return false;
  const notes = Object.entries(value);
  return (
    notes.length <= MAX_NOTES && notes.every(([name, note]) => isIdentifier(name) && isText(note))
  );
}
