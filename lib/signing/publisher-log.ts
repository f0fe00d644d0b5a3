import { Logger } from '@nestjs/common';

/**
 * What the publisher tells while it delivers. The application's logger may throw, and an outcome that is known must
 * not get lost by it: the event would be sent again.
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

function quietly(tell: () => void): void {
  try {
    tell();
  } catch {
    // There is nobody left to tell.
  }
}
