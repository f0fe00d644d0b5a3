import { execFileSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, read, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const THREADS = Number(process.env.UV_THREADPOOL_SIZE ?? 4);
/** Milliseconds for which a task occupies its thread, similar to a DNS lookup or a small part of a password hash. */
const HOLD = 20;

/**
 * Keeps every thread of libuv's pool busy, with as many tasks waiting.
 *
 * The tasks read from an empty pipe, and are released one at a time. Key derivations would occupy the threads too, but they
 * also use CPU time: on a machine with few cores, the benchmark would then measure how long the system makes a thread wait
 * for a core.
 */
export class FullThreadPool {
  #directory = mkdtempSync(join(tmpdir(), 'webhooks-bench-'));
  #stopped = false;
  #inFlight = 0;
  #file;
  #timer;
  /** Number of completed tasks. */
  done = 0;

  constructor() {
    const pipe = join(this.#directory, 'pipe');
    execFileSync('mkfifo', [pipe]);
    // For reading and writing: opening one end alone blocks until the other is opened.
    this.#file = openSync(pipe, 'r+');
    for (let i = 0; i < 2 * THREADS; i++) this.#hold();
    this.#timer = setInterval(() => writeSync(this.#file, '.'), HOLD / THREADS);
  }

  async stop() {
    this.#stopped = true;
    while (this.#inFlight > 0) await new Promise((resolve) => setTimeout(resolve, HOLD));
    clearInterval(this.#timer);
    closeSync(this.#file);
    rmSync(this.#directory, { recursive: true });
  }

  #hold() {
    this.#inFlight++;
    read(this.#file, Buffer.alloc(1), 0, 1, null, () => {
      this.#inFlight--;
      this.done++;
      if (!this.#stopped) this.#hold();
    });
  }
}
