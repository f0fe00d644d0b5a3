import { Logger } from '@nestjs/common';
import { quietly } from '../errors/webhook.error.js';

/** Topics that are remembered. */
const MAX_REMEMBERED = 1_000;

/**
 * Logs for the publisher. It never throws, since an error of the application's logger would lose the outcome of an attempt, and
 * the event would be sent again.
 */
export class PublisherLog {
  private readonly logger = new Logger('WebhookPublisher');
  /** Of each topic, the problem that was logged last. */
  private readonly outages = new Map<string, string>();

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

  /**
   * Logs a problem that every delivery meets: only the first time, until {@link recovered} is called or `problem` changes.
   *
   * @param topic - what fails
   * @param problem - how it fails
   */
  once(level: 'warn' | 'error', topic: string, message: () => string, problem = ''): void {
    if (this.outages.get(topic) === problem) return;
    // The endpoint of a topic may be deleted before it has recovered.
    if (this.outages.size >= MAX_REMEMBERED) this.outages.clear();
    this.outages.set(topic, problem);
    this[level](message);
  }

  /** Ends the problem of a topic: the next one is logged again. */
  recovered(topic: string): void {
    this.outages.delete(topic);
  }
}
