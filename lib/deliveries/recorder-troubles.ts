import { errorName } from '../errors/error-name.js';
import { isWebhookError } from '../errors/webhook.error.js';
import { PublisherLog } from '../sending/publisher-log.js';

/** Tells once that the delivery log fails, and once that it works again. */
export class RecorderTroubles {
  private readonly logger = new PublisherLog();
  private isFailing = false;

  failed(error: unknown): void {
    if (this.isFailing) return;
    this.isFailing = true;
    this.logger.warn(
      () =>
        `The delivery log fails (${nameOf(error)}): deliveries go on, and what became of them is told to it when it works again.`,
    );
  }

  /** @param lost - news that it will not be told any more */
  worked(lost: number): void {
    if (!this.isFailing && lost === 0) return;
    this.isFailing = false;
    const rest =
      lost === 0
        ? ''
        : `; it was not told of ${lost} changes, which it refused or which were too many to keep`;
    this.logger.log(() => `The delivery log works again${rest}.`);
  }
}

/** A stranger's message may quote what was to be stored. */
function nameOf(error: unknown): string {
  if (isWebhookError(error)) return `${error.code}: ${error.message}`;
  return errorName(error);
}
