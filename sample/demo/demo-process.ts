import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import type { Question, Reply } from './answer-questions.js';

/** Milliseconds to wait for a reply. */
const PATIENCE = 60_000;

/** One of the two child processes. It answers one question at a time. */
export class DemoProcess<Skills extends Record<keyof Skills, (...args: never[]) => unknown>> {
  private readonly ended = new AbortController();

  private constructor(
    private readonly name: string,
    private readonly child: ChildProcess,
  ) {
    child.once('exit', (code, signal) => {
      this.ended.abort(new Error(`The ${name} exited with ${code ?? signal}.`));
    });
  }

  /**
   * Starts the application in the folder of this name.
   *
   * @returns the process, once it runs, and the address that it reports
   */
  static async start<Skills extends Record<keyof Skills, (...args: never[]) => unknown>>(
    name: string,
    settings: Readonly<Record<string, string>>,
  ): Promise<{ readonly process: DemoProcess<Skills>; readonly address: string }> {
    const child = fork(new URL(`./${name}/main.js`, import.meta.url), {
      env: { ...process.env, ...settings },
      // The default, JSON, cannot carry bytes.
      serialization: 'advanced',
    });
    const started = new DemoProcess<Skills>(name, child);
    const address = await started.nextReply().catch((error: unknown) => {
      child.kill('SIGKILL');
      throw error;
    });
    return { process: started, address: address as string };
  }

  get pid(): number | undefined {
    return this.child.pid;
  }

  async ask<Name extends keyof Skills & string>(
    skill: Name,
    ...args: Parameters<Skills[Name]>
  ): Promise<Awaited<ReturnType<Skills[Name]>>> {
    const question: Question = { skill, with: args };
    this.child.send(question);
    return (await this.nextReply()) as Awaited<ReturnType<Skills[Name]>>;
  }

  /** Disconnects, which ends the process; kills it if it does not end by itself. */
  async stop(): Promise<void> {
    if (this.ended.signal.aborted) return;
    const kill = setTimeout(() => this.child.kill('SIGKILL'), PATIENCE);
    this.child.disconnect();
    await once(this.child, 'exit');
    clearTimeout(kill);
    if (this.child.exitCode !== 0) throw this.ended.signal.reason;
  }

  private async nextReply(): Promise<unknown> {
    const ended = this.ended.signal;
    const patience = AbortSignal.timeout(PATIENCE);
    const signal = AbortSignal.any([ended, patience]);
    const [reply] = (await once(this.child, 'message', { signal }).catch((error: unknown) => {
      if (ended.aborted) throw ended.reason;
      if (!patience.aborted) throw error;
      throw new Error(`The ${this.name} did not reply within ${PATIENCE / 1_000} seconds.`);
    })) as [Reply];
    if ('failure' in reply) throw new Error(`The ${this.name} failed: ${reply.failure}`);
    return reply.answer;
  }
}
