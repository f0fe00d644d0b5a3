import { Logger } from '@nestjs/common';

/**
 * Logs for the publisher. It never throws, since an error of the application's logger would lose the outcome of an attempt, and
 * the event would be sent again.
 */
export class PublisherLog {
  private readonly logger = new Logger('WebhookPublisher');

  error(message: () => string): void {
    quietly(() => this.logger.error(message()));
  }

  warn(message: () => string): void {
    quietly(() => this.logger.warn(message()));
  }

  log(message: () => string): void {
    quietly(() => this.logger.log(message()));
  }

  debug(message: () => string): void {
    quietly(() => this.logger.debug(message()));
  }
}

function quietly(log: () => void): void {
  try {
    log();
  } catch {
    // There is nowhere left to report it.
  }
}
