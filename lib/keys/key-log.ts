import { isWebhookError } from '../errors/webhook.error.js';

/** Writes a line about keys to the application's log. */
export type KeyLog = (level: 'log' | 'warn' | 'error', line: string) => void;

/** Logs an outage once when it begins, or when its reason changes, and once when it ends. */
export class OutageLog {
  private logged: string | undefined;

  /** @param subject - begins each line: `The keys of receiver "default"` */
  constructor(
    private readonly subject: string,
    private readonly log: KeyLog,
  ) {}

  failed(error: unknown): void {
    const line = `${this.subject} cannot be refreshed; keys that are known stay in use: ${reasonOf(error)}`;
    if (line === this.logged) return;
    this.logged = line;
    this.log('error', line);
  }

  ended(): void {
    if (this.logged === undefined) return;
    this.logged = undefined;
    this.log('log', `${this.subject} are refreshed again`);
  }
}

/** The loggable part of an error: the message of our own errors, and only the name and code of others. */
export function reasonOf(error: unknown): string {
  if (isWebhookError(error)) return error.message;
  // By shape, since an error may come from another realm.
  if (typeof error !== 'object' || error === null) return 'a value other than an Error was thrown';
  const { name, code } = error as { name?: unknown; code?: unknown };
  const label = isWord(name) ? name : 'an Error';
  return isWord(code) ? `${label} (${code})` : label;
}

function isWord(value: unknown): value is string {
  return typeof value === 'string' && /^\w{1,40}$/.test(value);
}
