import type { WebhookError } from '../errors/webhook.error.js';
import { PublisherLog } from '../signing/publisher-log.js';

/** Warns once about problems that affect every attempt. */
export class AttemptWarnings {
  private readonly log = new PublisherLog();
  private unreadableLogged = false;
  private bypassLogged = false;
  private loggedSigningCode: string | undefined;

  /** Logs once until signing succeeds again: a failing key service affects every delivery. */
  unsigned({ code, message }: WebhookError): void {
    if (code === this.loggedSigningCode) return;
    this.loggedSigningCode = code;
    this.log.warn(
      () => `Deliveries cannot be signed and are retried on schedule (${code}): ${message}`,
    );
  }

  signed(): void {
    this.loggedSigningCode = undefined;
  }

  /** Logs once: an application may do this on purpose, for example for a proxy. */
  bypassed(setting: string): void {
    if (this.bypassLogged) return;
    this.bypassLogged = true;
    this.log.warn(
      () =>
        `An interceptor of HttpService replaces ${setting}: the egress guard checks the URLs of deliveries, but cannot check the addresses they are sent to. If this is not intended, pass the publisher an HttpService without the interceptor ("httpModule").`,
    );
  }

  unreadable(): void {
    if (this.unreadableLogged) return;
    this.unreadableLogged = true;
    this.log.warn(
      () =>
        'HttpService did not return an Axios response (malformed_response), so every delivery is retried: an interceptor probably returns response.data. Pass the publisher an HttpService without it ("httpModule").',
    );
  }
}
