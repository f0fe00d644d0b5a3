import { Subject, type Observable } from 'rxjs';
import type { WebhookDeliveryEvent } from './webhook-delivery-event.interface.js';

/**
 * What happens to deliveries, as a stream: for metrics, alerts and dashboards. To react to single kinds of
 * events, `@OnWebhookDelivery()` is shorter.
 *
 * Only this process's attempts are told of. It is told as it happens and not kept: who subscribes later
 * has missed it. What a subscriber throws is rxjs's to report, as an uncaught exception: catch it there.
 */
export class WebhookDeliveryEvents {
  private readonly subject = new Subject<WebhookDeliveryEvent>();

  /** Never ends by an error; completes at shutdown. */
  readonly events$: Observable<WebhookDeliveryEvent> = this.subject.asObservable();

  /** @internal Whether anybody would hear it. */
  get areHeard(): boolean {
    return this.subject.observed;
  }

  /** @internal */
  tell(event: WebhookDeliveryEvent): void {
    this.subject.next(event);
  }

  /** @internal */
  close(): void {
    this.subject.complete();
  }
}
