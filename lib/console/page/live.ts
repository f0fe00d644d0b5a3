import { useEffect, useRef, useState } from 'preact/hooks';
import type { ChangesAnswer, ConsoleChange } from '../console-api.js';
import { get, type ApiError } from './api.js';

type Topic = ConsoleChange['topic'];
type Listener = (topic: Topic | undefined) => void;

const POLL_MS = 5_000;
/** Changes of other processes are not reported. */
const REFRESH_MS = 30_000;
/** Several changes in a row cause one request. Longer than the server reuses counts, so that they include the change. */
const SETTLE_MS = 1_500;

const listeners = new Set<Listener>();
const notify: Listener = (topic) => listeners.forEach((listener) => listener(topic));

/**
 * Starts to listen for changes: server-sent events, or polling if they are blocked. A hidden tab holds no connection, because
 * browsers allow six to one origin by HTTP/1.1.
 */
export function startLive(): void {
  let source = document.hidden ? undefined : openStream();
  document.addEventListener('visibilitychange', () => {
    source?.close();
    source = document.hidden ? undefined : openStream();
  });
  setInterval(() => {
    if (!document.hidden) notify(undefined);
  }, REFRESH_MS);
}

let isPolling = false;

function openStream(): EventSource | undefined {
  if (isPolling) return undefined;
  const source = new EventSource('./api/events');
  source.addEventListener('change', ({ data }: MessageEvent<string>) =>
    notify((JSON.parse(data) as ConsoleChange).topic),
  );
  // Changes before the stream opened, or while it was interrupted, were not sent.
  source.addEventListener('open', () => notify(undefined));
  source.addEventListener('error', () => {
    if (source.readyState !== EventSource.CLOSED || isPolling) return;
    isPolling = true;
    void poll();
  });
  return source;
}

async function poll(after?: number): Promise<void> {
  let next = after;
  try {
    const query = { after: after === undefined ? undefined : String(after) };
    const { sequence, changes, gap } = await get<ChangesAnswer>('changes', query);
    next = sequence;
    if (gap || after === undefined) notify(undefined);
    else new Set(changes.map(({ topic }) => topic)).forEach((topic) => notify(topic));
  } catch {
    // The views show what fails; this only tries again.
  }
  setTimeout(() => void poll(next), POLL_MS);
}

/** Something that is loaded, and loaded again when it changes. */
export interface Loaded<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly reload: () => void;
}

/**
 * Loads data, and reloads it after a change.
 *
 * @param key - identifies what is loaded: another key discards the data
 * @param topics - changes that concern it
 */
export function useLoaded<T>(
  key: string,
  topics: readonly Topic[],
  load: (signal: AbortSignal) => Promise<T>,
): Loaded<T> {
  const [state, setState] = useState<{ key: string; data?: T; error?: ApiError }>({ key });
  const [turn, setTurn] = useState(0);
  const progress = useRef({ isLoading: false, hasChanged: false }).current;
  const reload = (): void => setTurn((before) => before + 1);

  useEffect(() => {
    const controller = new AbortController();
    Object.assign(progress, { isLoading: true, hasChanged: false });
    const finish = (next: (before: typeof state) => typeof state): void => {
      if (controller.signal.aborted) return;
      progress.isLoading = false;
      setState(next);
      if (progress.hasChanged) reload();
    };
    load(controller.signal).then(
      (data) => finish(() => ({ key, data })),
      // Data of another key would be shown as that of this one.
      (error: ApiError) => finish((before) => ({ ...(before.key === key && before), key, error })),
    );
    return () => controller.abort();
  }, [key, turn]);

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const listener: Listener = (topic) => {
      if (topic !== undefined && !topics.includes(topic)) return;
      timer ??= setTimeout(() => {
        timer = undefined;
        // To abort it would starve a slow load under constant changes.
        if (progress.isLoading) progress.hasChanged = true;
        else reload();
      }, SETTLE_MS);
    };
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
      clearTimeout(timer);
    };
  }, [key]);

  const isCurrent = state.key === key;
  return {
    data: isCurrent ? state.data : undefined,
    error: isCurrent ? state.error : undefined,
    reload,
  };
}
