import type { DataIssue } from '../../events/data-checks.js';
import type { WebhookEventCatalog } from '../../events/event-catalog.js';
import { isReadOnDemand, type WebhookEvent } from '../webhook-event.js';
import { invalidData } from './payload-validator.js';

/**
 * Checks the data of an event that the application has defined.
 *
 * @throws an HttpException 422 with one message per issue
 */
export async function requireDefinedData(
  event: WebhookEvent,
  events: WebhookEventCatalog,
): Promise<void> {
  const issues = await definedDataIssues(event, events);
  if (issues.length > 0) throw invalidData(issues);
}

/** What is wrong with the data of an event that the application has defined. */
export async function definedDataIssues(
  event: WebhookEvent,
  events: WebhookEventCatalog,
): Promise<readonly DataIssue[]> {
  if (!events.checks(event.event)) return [];
  // `data` would read a body that is in a file synchronously.
  const data: unknown = isReadOnDemand(event) ? await event.rawBody() : event.data;
  return events.check(event.event, data);
}
