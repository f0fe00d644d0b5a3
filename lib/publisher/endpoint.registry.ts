import { matchesEvent } from '../token/event-name.js';
import { DestinationState, type DeliveryTarget } from './delivery-target.js';
import type {
  ResolvedEndpoint,
  ResolvedPublisherOptions,
} from './options/publisher-options.interface.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';

/** URLs whose state is remembered; the one not used for longest is forgotten first. */
const MAX_REMEMBERED_URLS = 1_000;

interface Subscription {
  readonly endpoint: ResolvedEndpoint;
  readonly target: DeliveryTarget;
}

/** Knows the destinations: the configured endpoints, and the URLs that callers have named. */
export class EndpointRegistry {
  private readonly subscriptions: ReadonlyMap<string, Subscription>;
  private readonly urls = new Map<string, DeliveryTarget>();

  constructor(private readonly options: ResolvedPublisherOptions) {
    this.subscriptions = new Map(
      options.endpoints.map((endpoint) => [endpoint.id, { endpoint, target: targetOf(endpoint) }]),
    );
  }

  /** The enabled endpoints of the tenant that want the event. */
  subscribed(event: string, tenant: string | undefined): DeliveryTarget[] {
    return [...this.subscriptions.values()]
      .filter(
        ({ endpoint, target }) =>
          !target.state.disabled &&
          endpoint.tenant === tenant &&
          endpoint.events.some((pattern) => matchesEvent(pattern, event)),
      )
      .map(({ target }) => target);
  }

  /** The endpoint with this id. */
  endpoint(id: string): DeliveryTarget | undefined {
    return this.subscriptions.get(id)?.target;
  }

  /** The destination of a URL, under the publisher's own key; the egress guard judges it at every attempt. */
  url(url: string): DeliveryTarget {
    const known = this.urls.get(url);
    this.urls.delete(url);
    const target = known ?? {
      ...this.options.defaults,
      url,
      label: URL.canParse(url) ? new URL(url).origin : 'no URL',
      state: new DestinationState(),
    };
    this.urls.set(url, target);
    if (this.urls.size > MAX_REMEMBERED_URLS) this.urls.delete(this.urls.keys().next().value!);
    return target;
  }

  /** Where a recorded delivery goes; `undefined` when its endpoint is not configured any more. */
  targetOf({ endpointId, url }: WebhookDelivery): DeliveryTarget | undefined {
    if (endpointId !== undefined) return this.endpoint(endpointId);
    return url === undefined ? undefined : this.url(url);
  }
}

function targetOf(endpoint: ResolvedEndpoint): DeliveryTarget {
  const { signer, hash, profile, method, timeout, headers, jti, audience, subject, url } = endpoint;
  return {
    signer,
    profile,
    method,
    timeout,
    headers,
    jti,
    url,
    endpointId: endpoint.id,
    label: `endpoint "${endpoint.id}"`,
    state: new DestinationState(endpoint.disabled),
    ...(hash !== undefined && { hash }),
    ...(audience !== undefined && { audience }),
    ...(subject !== undefined && { subject }),
  };
}
