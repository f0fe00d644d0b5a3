import { spawn, type ChildProcess } from 'node:child_process';
import { EventEmitter, once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** A script of the samples in a child process, and everything it has printed. */
export class SampleProcess {
  readonly lines: string[] = [];

  private readonly changes = new EventEmitter();
  private readonly closed: Promise<void>;

  private constructor(private readonly child: ChildProcess) {
    for (const stream of [child.stdout!, child.stderr!]) {
      createInterface(stream).on('line', (line) => {
        this.lines.push(line);
        this.changes.emit('change');
      });
    }
    // Not 'exit': the last output can arrive after that event.
    this.closed = once(child, 'close').then(() => {
      this.changes.emit('change');
    });
  }

  /**
   * Runs a script with node.
   *
   * @param args - the script's path from the root of the package, and its arguments
   */
  static run(args: readonly string[], env: Readonly<Record<string, string>> = {}): SampleProcess {
    const child = spawn(process.execPath, args, {
      cwd: ROOT,
      env: { PATH: process.env['PATH'], NO_COLOR: '1', ...env },
    });
    return new SampleProcess(child);
  }

  /** Starts a sample application on a free port. */
  static start(name: string, env: Readonly<Record<string, string>> = {}): SampleProcess {
    return SampleProcess.run(['sample/start.mjs', name], { PORT: '0', ...env });
  }

  /** @returns the origin that the application prints at start */
  async origin(): Promise<string> {
    const [origin] = await this.printed(/http:\/\/127\.0\.0\.1:\d+/);
    return origin;
  }

  /** Waits until a line matches. */
  async printed(pattern: RegExp): Promise<RegExpExecArray> {
    for (;;) {
      for (const line of this.lines) {
        const match = pattern.exec(line);
        if (match !== null) return match;
      }
      if (this.hasEnded)
        throw new Error(`The sample ended without printing ${pattern}:\n${this.output}`);
      await once(this.changes, 'change');
    }
  }

  /** Waits until the process has ended. */
  async exitCode(): Promise<number | null> {
    await this.closed;
    return this.child.exitCode;
  }

  /** Stops the process with SIGTERM, like an orchestrator, or kills it. */
  async stop(signal: 'SIGTERM' | 'SIGKILL' = 'SIGTERM'): Promise<void> {
    this.child.kill(signal);
    await this.closed;
  }

  get output(): string {
    return this.lines.join('\n');
  }

  get hasEnded(): boolean {
    return this.child.exitCode !== null || this.child.signalCode !== null;
  }
}
