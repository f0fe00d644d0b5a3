import type { ServerResponse } from 'node:http';

/**
 * Calls back once, when an answer is out or will never be. Does for a response what `finished` of `node:stream` does for
 * any stream, with three listeners instead of eight (benchmark `receive`, `@WebhookRoute`).
 */
export function whenAnswered(response: ServerResponse, callback: () => void): void {
  let called = false;
  const call = (): void => {
    if (called) return;
    called = true;
    callback();
  };
  // The listener for errors stays: without one, a write after the end would take the process down.
  response.on('error', call).once('finish', call).once('close', call);
  if (response.destroyed || response.writableFinished) process.nextTick(call);
}
