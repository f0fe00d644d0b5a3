import { WebhookStoreError } from '../errors/webhook-store.error.js';

/** What Redis itself says, by the first word of it, and what its operator can do. */
const REPLIES: readonly (readonly [RegExp, string])[] = [
  [/\bOOM\b/, 'its memory is full (maxmemory): give it more, or remove what it need not keep'],
  [/\bREADONLY\b/, 'it is a read-only replica: connect to the primary'],
  [/\b(?:WRONGPASS|NOAUTH)\b|invalid password/, 'it refuses the credentials'],
  [/\bNOPERM\b/, 'the user may not do that: grant it the commands and keys of BullMQ'],
  [/\bMISCONF\b/, 'it cannot write to its disk'],
  [/\bLOADING\b/, 'it is starting up'],
  [/^no answer$/, 'it does not answer'],
  [/\b(?:CLUSTERDOWN|MASTERDOWN)\b/, 'its cluster is down'],
];

/** What the way to it comes to, by the code of the system's error. */
const CODES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens at its address',
  ENOTFOUND: 'its host is not known',
  EAI_AGAIN: 'its host is not known',
  ETIMEDOUT: 'its address does not answer',
  ECONNRESET: 'the connection broke',
  EPIPE: 'the connection broke',
};

/** Says why Redis could not be used, in words of ours: its own may quote a command, and with it a payload. */
export function redisFailure(cause: unknown): WebhookStoreError {
  const reason = reasonOf(cause);
  const because = reason === undefined ? '.' : `: ${reason}.`;
  return new WebhookStoreError(
    'store_unavailable',
    `The delivery queue cannot use Redis${because}`,
    { cause },
  );
}

function reasonOf(cause: unknown): string | undefined {
  const { code, message } = (cause ?? {}) as { code?: unknown; message?: unknown };
  if (typeof code === 'string' && CODES[code] !== undefined) return CODES[code];
  return REPLIES.find(([pattern]) => pattern.test(String(message)))?.[1];
}
