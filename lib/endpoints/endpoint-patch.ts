import type { EndpointDraft } from './endpoint-input.js';
import type { StoredEndpoint } from './endpoint-store.js';

/** Lays a change over an endpoint. */
export function patched(
  current: StoredEndpoint,
  { url = current.url, events = current.events, settings, removed, ...draft }: EndpointDraft,
): StoredEndpoint {
  const { description, metadata } = draft;
  const kept = without(current, removed);
  return {
    ...kept,
    url,
    events,
    settings: { ...without(current.settings, removed), ...settings },
    ...(description !== undefined && { description }),
    ...(metadata !== undefined && { metadata }),
  };
}

/** Whether a change touches nothing of what somebody else has changed since. */
export function commutes(
  draft: EndpointDraft,
  before: StoredEndpoint,
  now: StoredEndpoint,
): boolean {
  const touched = new Set<string>([
    ...Object.keys(draft.settings),
    ...draft.removed,
    ...(['url', 'events', 'description', 'metadata'] as const).filter(
      (name) => draft[name] !== undefined,
    ),
  ]);
  const isSame = (name: string): boolean =>
    JSON.stringify(valueOf(before, name)) === JSON.stringify(valueOf(now, name));
  return [...touched].every(isSame);
}

function valueOf(endpoint: StoredEndpoint, name: string): unknown {
  return { ...endpoint.settings, ...endpoint }[name as keyof StoredEndpoint];
}

function without<T extends object>(value: T, names: readonly string[]): T {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name))) as T;
}
