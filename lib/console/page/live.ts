import { useEffect, useRef, useState } from 'preact/hooks';
import type { ConsoleChange } from '../console-api.js';
import { get, isChanging, nextDeletion, type ApiError, type Query } from './api.js';

type Topic = ConsoleChange['topic'];
type Listener = (topic: Topic | undefined) => void;

/** Changes of other processes are not reported, and none if the stream is refused. */
const REFRESH_MS = 30_000;
/** Several changes in a row cause one request. Longer than the server reuses counts, so that they include the change. */
const SETTLE_MS = 1_500;

const listeners = new Set<Listener>();
const notify: Listener = (topic) => listeners.forEach((listener) => listener(topic));

/** The tabs of this page: of one path, since console and portal have sessions of their own. */
const NAME = `webhook-console ${location.pathname}`;
const channel = new BroadcastChannel(NAME);

/**
 * Starts to listen for changes. Browsers allow six connections to one origin by HTTP/1.1, so all tabs share one stream: a visible tab
 * holds it, by a lock, and passes changes on to the others. A hidden tab gives the lock back.
 */
export function startLive(): void {
  channel.addEventListener('message', ({ data }: MessageEvent<Topic | undefined>) => notify(data));
  let release = document.hidden ? undefined : hold();
  document.addEventListener('visibilitychange', () => {
    release?.();
    release = document.hidden ? undefined : hold();
    // Nothing may have held the stream in the meantime.
    if (!document.hidden) notify(undefined);
  });
  setInterval(() => {
    if (!document.hidden) notify(undefined);
  }, REFRESH_MS);
}

const broadcast = channel.postMessage.bind(channel);

/** Reports a change here and in the other tabs. */
const report: Listener = (topic) => {
  notify(topic);
  broadcast(topic);
};

/** Listens as soon as no other tab does. @returns ends it */
function hold(): () => void {
  const ended = new AbortController();
  const listen = async (): Promise<void> => {
    const stop = listenAlone();
    await new Promise((resolve) => ended.signal.addEventListener('abort', resolve));
    stop();
  };
  // Only pages of a secure origin have locks.
  if ('locks' in navigator) {
    const options = { signal: ended.signal };
    // It rejects if the tab was hidden before its turn.
    navigator.locks
      .request(NAME, options, () => (ended.signal.aborted ? undefined : listen()))
      .catch(() => undefined);
  } else void listen();
  return () => ended.abort();
}

/** Opens the stream; one that is refused stays closed. @returns ends it */
function listenAlone(): () => void {
  const source = new EventSource('./api/events');
  source.addEventListener('change', ({ data }: MessageEvent<string>) =>
    report((JSON.parse(data) as ConsoleChange).topic),
  );
  // Changes before the stream opened, or while it was interrupted, were not sent.
  source.addEventListener('open', () => report(undefined));
  return () => source.close();
}

/** Something that is loaded, and loaded again when it changes. */
export interface Loaded<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly reload: () => void;
}

/**
 * Loads an answer of the API, and loads it again after a change. Another path or query discards the data.
 *
 * @param path - `undefined` to load nothing
 * @param topics - changes that concern it
 * @param toRequest - makes the request of the query when it is loaded, because it depends on the time
 */
export function useLoaded<T, Given extends Query = Query>(
  path: string | undefined,
  topics: readonly Topic[],
  query?: Given,
  toRequest: (query: Given) => Query = (same) => same,
): Loaded<T> {
  const key = JSON.stringify([path, query]);
  const [state, setState] = useState<{ key: string; data?: T; error?: ApiError }>({ key });
  const [turn, setTurn] = useState(0);
  const progress = useRef({ isLoading: false, hasChanged: false }).current;
  const reload = (): void => setTurn((before) => before + 1);

  useEffect(() => {
    if (path === undefined) return undefined;
    const controller = new AbortController();
    Object.assign(progress, { isLoading: true, hasChanged: false });
    // What the user deletes would be reported as not found, before the page leaves it.
    const signal = AbortSignal.any([controller.signal, nextDeletion()]);
    const finish = (next: (before: typeof state) => typeof state): void => {
      if (controller.signal.aborted) return;
      progress.isLoading = false;
      if (signal.aborted) return notify(undefined);
      setState(next);
      if (progress.hasChanged) reload();
    };
    get<T>(path, query && toRequest(query), signal).then(
      (data) => finish(() => ({ key, data })),
      // Data of another key would be shown as that of this one.
      (error: ApiError) => finish((before) => ({ ...(before.key === key && before), key, error })),
    );
    return () => controller.abort();
  }, [key, turn]);

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const listener: Listener = (topic) => {
      if (topic === undefined || topics.includes(topic)) timer ??= setTimeout(settle, SETTLE_MS);
    };
    const settle = (): void => {
      timer = undefined;
      // The change may be a deletion, as above.
      if (isChanging()) listener(undefined);
      // To abort it would starve a slow load under constant changes.
      else if (progress.isLoading) progress.hasChanged = true;
      else reload();
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
