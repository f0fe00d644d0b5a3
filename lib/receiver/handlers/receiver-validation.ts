import type { ValidationPipeOptions } from '@nestjs/common';
import type { WebhookEvent } from '../webhook-event.js';

// A parameter decorator has no access to the module's options, only to the event; so the receiver
// leaves word here how its data is to be validated.
const validations = new WeakMap<WebhookEvent, ValidationPipeOptions | false>();

/** Notes how the data of an event is validated. */
export function keepValidation(
  event: WebhookEvent,
  validation: ValidationPipeOptions | false,
): void {
  validations.set(event, validation);
}

/** How the data of an event is validated. */
export function validationOf(event: WebhookEvent): ValidationPipeOptions | false {
  return validations.get(event) ?? false;
}
