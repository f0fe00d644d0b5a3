import type { Duplex } from 'node:stream';

/** What opens connections, as undici calls it. */
type Connect<Arguments extends readonly unknown[]> = (...args: Arguments) => unknown;

/**
 * Finds the connection that a request has begun to open. undici lets go of one only when it is there or has failed: one to a
 * server that never shakes hands would stay, and with it the request, long after the attempt was given up.
 */
export class OpenedConnection {
  private opened: unknown;

  /** A connector that is watched. */
  watch<Arguments extends readonly unknown[]>(connect: Connect<Arguments>): Connect<Arguments> {
    return (...args) => (this.opened = connect(...args));
  }

  /**
   * Runs what may open one: undici does so within the dispatch.
   *
   * @returns what gives the connection up; it does nothing where none was opened, or where it is gone
   */
  by(dispatch: () => void): () => void {
    this.opened = undefined;
    dispatch();
    const opened = this.opened as Duplex | undefined;
    this.opened = undefined;
    // With an error: without one undici would not hear of it, and wait on.
    return () => opened?.destroy(new Error('The attempt was given up.'));
  }
}
