import { execFileSync } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, read, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const THREADS = Number(process.env.UV_THREADPOOL_SIZE ?? 4);
/** Milliseconds for which a task holds its thread: those of a look-up of a name, or of a small part of a password's hash. */
const HOLD = 20;

/**
 * Keeps every thread of libuv's pool taken, and as many tasks waiting for one.
 *
 * The tasks read from a pipe that has nothing in it, and one of them is let go at a time. Key derivations would hold the
 * threads as well; but they would take the processor too, and what is measured beside them is then for how long the system
 * keeps a thread waiting for a core, of which a benchmark's machine may have two.
 */
export class FullThreadPool {
  #directory = mkdtempSync(join(tmpdir(), 'webhooks-bench-'));
  #stopped = false;
  #inFlight = 0;
  #file;
  #timer;
  /** Tasks done. */
  done = 0;

  constructor() {
    const pipe = join(this.#directory, 'pipe');
    execFileSync('mkfifo', [pipe]);
    // For both: to open one end alone waits for the other.
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
