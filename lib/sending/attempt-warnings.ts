import type { AxiosRequestConfig } from 'axios';
import type { WebhookError } from '../errors/webhook.error.js';
import { PublisherLog } from '../signing/publisher-log.js';
import { guardBypass } from './request-config.js';

/** Tells the log what is wrong with every attempt alike, once. */
export class AttemptWarnings {
  private readonly log = new PublisherLog();
  private hasToldOfUnreadable = false;
  private hasToldOfBypass = false;
  private toldOfSigning: string | undefined;

  /** Once, until something is signed again: a key service that is down fails every delivery. */
  unsigned({ code, message }: WebhookError): void {
    if (code === this.toldOfSigning) return;
    this.toldOfSigning = code;
    this.log.warn(
      () => `Deliveries cannot be signed and are tried again by the schedule (${code}): ${message}`,
    );
  }

  signed(): void {
    this.toldOfSigning = undefined;
  }

  /** Once: an application that has set it on purpose, say for a proxy, knows already. */
  bypassed(config: AxiosRequestConfig, outcome: unknown): void {
    if (this.hasToldOfBypass) return;
    const setting = guardBypass(config, outcome);
    if (setting === undefined) return;
    this.hasToldOfBypass = true;
    this.log.warn(
      () =>
        `An interceptor of HttpService replaces ${setting}: the egress guard checks the URLs of deliveries, but cannot check the addresses they are sent to. If that is not meant, give the publisher an HttpService without it, by the option httpModule.`,
    );
  }

  unreadable(): void {
    if (this.hasToldOfUnreadable) return;
    this.hasToldOfUnreadable = true;
    this.log.warn(
      () =>
        'HttpService gives what is no axios response (malformed_response): an interceptor that unwraps answers, like `(response) => response.data`, hides whether they acknowledge, and every delivery is sent again. Give the publisher an HttpService without it, by the option httpModule.',
    );
  }
}
