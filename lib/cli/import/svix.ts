import { defined } from '../../options/defined.js';
import {
  BY_HAND,
  booleanOf,
  credentialsIn,
  elementsOf,
  membersOf,
  rateLimitOf,
  type SourceEndpoint,
  textOf,
  unlessEmpty,
} from './source-endpoint.js';

/**
 * Reads an endpoint of Svix: `{ app, endpoint, secret, headers, transformation }`, each as its API and its library return it. The names of
 * version 1 of the library (`filterTypes`, `rateLimit`) and of version 2 (`eventTypes`, `throttleRate`) are both known.
 */
export function readSvix(item: unknown): SourceEndpoint {
  const { app, endpoint: found, secret, headers: headersOut, transformation } = membersOf(item);
  const { uid: appUid, id: appId, ...ofApp } = membersOf(app);
  const { id, uid, url, description, metadata, channels, disabled, ...rest } = membersOf(found);
  const { headers, sensitive } = membersOf(headersOut);
  const types = rest['eventTypes'] ?? rest['filterTypes'];
  // The rate of the application is the default of its endpoints, and applies to each.
  const rate =
    rest['throttleRate'] ?? rest['rateLimit'] ?? ofApp['throttleRate'] ?? ofApp['rateLimit'];
  const tenant = textOf(appUid) ?? textOf(appId);
  const notes =
    headersOut === undefined ? ['headers: are missing in the export, so none is sent'] : [];
  const problems: string[] = [];
  if (tenant === undefined) {
    problems.push('app: is missing, and its uid or id becomes the tenant; add it to the export');
  }
  if (elementsOf(channels).length > 0) {
    problems.push(`channels: there are none here; use a filter by data: ${BY_HAND}`);
  }
  const hidden = elementsOf(sensitive)
    .map((name) => textOf(name) ?? JSON.stringify(name))
    .filter((name) => !Object.hasOwn(membersOf(headers), name));
  if (hidden.length > 0) {
    problems.push(
      `headers: Svix does not return the values of ${hidden.join(', ')}; add them to "headers" in the export`,
    );
  }
  const isDisabled = booleanOf(disabled ?? false);
  if (isDisabled === undefined) {
    problems.push(`disabled: ${JSON.stringify(disabled)} is unknown; write true or false`);
  }
  if (booleanOf(membersOf(transformation)['enabled'] ?? false) !== false) {
    problems.push(`transformation: there is none here; publish the data that it makes: ${BY_HAND}`);
  }
  return {
    endpoint: defined({
      id,
      tenant,
      url,
      // `null` for every event.
      events: types ?? undefined,
      description: textOf(description),
      metadata: unlessEmpty(textOf(uid) === undefined ? metadata : { uid, ...membersOf(metadata) }),
      credentials: credentialsIn(headers),
      rateLimit: rateLimitOf(rate, 1),
      secret: membersOf(secret)['key'],
      // Svix sends the payload as it was passed.
      envelope: false,
    }),
    state: isDisabled === true ? 'disabled' : 'enabled',
    notes,
    problems,
  };
}
