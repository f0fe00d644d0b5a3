import { WebhookDeliveryError } from '../errors/webhook-delivery.error.js';

/** One refusal for an endpoint of another tenant and for one that is nowhere: nobody learns which ids others use. */
export function unknownEndpoint(): WebhookDeliveryError {
  return new WebhookDeliveryError('unknown_endpoint', 'There is no endpoint with this id.');
}

export function endpointExists(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'endpoint_exists',
    'An endpoint with this id exists: choose another id, or leave it out for a random one.',
  );
}

export function endpointChanged(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'endpoint_changed',
    'Somebody else changed the endpoint at the same time: read it again, and repeat the change if it is still wanted.',
  );
}

export function endpointIsConfigured(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'unsupported_option',
    "The endpoint is one of the publisher's options: change it in the configuration.",
  );
}

export function endpointHasNoKey(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'unsupported_option',
    "The endpoint has no key of its own to rotate: the publisher's signs for it.",
  );
}
