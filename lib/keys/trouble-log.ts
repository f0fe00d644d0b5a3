import { isWebhookError } from '../errors/webhook.error.js';

/** Where the room says what an operator should know. */
export type KeyLog = (level: 'log' | 'warn' | 'error', line: string) => void;

/** Tells of a trouble once, however often it is met, and once more when it has ended. */
export class TroubleLog {
  private told: string | undefined;

  /** @param what - begins the line: "The keys of receiver "default"" */
  constructor(
    private readonly what: string,
    private readonly log: KeyLog,
  ) {}

  trouble(error: unknown): void {
    const line = `${this.what} are not renewed, and those known stay in use: ${reasonOf(error)}`;
    if (line === this.told) return;
    this.told = line;
    this.log('error', line);
  }

  ended(): void {
    if (this.told === undefined) return;
    this.told = undefined;
    this.log('log', `${this.what} are renewed again`);
  }
}

/** What may be said of an error: our own messages; of a stranger's, which may hold anything, its name and code. */
export function reasonOf(error: unknown): string {
  if (isWebhookError(error)) return error.message;
  // By shape: an error may be of another realm.
  if (typeof error !== 'object' || error === null) return 'something that is no Error was thrown';
  const { name, code } = error as { name?: unknown; code?: unknown };
  const called = isWord(name) ? name : 'an Error';
  return isWord(code) ? `${called} (${code})` : called;
}

function isWord(value: unknown): value is string {
  return typeof value === 'string' && /^\w{1,40}$/.test(value);
}
