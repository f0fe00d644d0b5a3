import { setTimeout as pause } from 'node:timers/promises';
import { Client } from 'pg';
import type { OwnServer } from '../fixtures/own-server.js';
import { SampleProcess } from './sample-process.js';
import { Sender } from './sender.js';

/** Name of a process of the sample, as the sample calls it. */
export type Role = 'shop' | 'receiver';

const { env: SHOP } = new Sender('shop');
const READY_LINES: Readonly<Record<Role, RegExp>> = {
  shop: /The shop accepts orders at (http:\/\/127\.0\.0\.1:\d+)/,
  receiver: /The warehouse receives webhooks at (http:\/\/127\.0\.0\.1:\d+)/,
};
/** Attempts to start a process: a connection of another process may occupy its port in the meantime. */
const STARTS = 5;
const PAUSE = 20;

/** Sample 04 as two processes and a database server, which a test ends and restarts. */
export class RestartedShop {
  /** Number of restarts, by process and signal. */
  readonly restarts: Record<string, number> = {};
  /** Processes that ended by themselves, with their last output. */
  readonly crashes: string[] = [];

  private readonly running = new Map<Role, SampleProcess>();
  private readonly origins = new Map<Role, string>();

  constructor(private readonly server: OwnServer) {}

  originOf(role: Role): string {
    return this.origins.get(role)!;
  }

  /** Starts both processes; the warehouse keeps its port across restarts. */
  async start(): Promise<void> {
    const client = await this.untilDatabaseAnswers();
    await client.end();
    await this.startRole('receiver');
    await this.startRole('shop');
  }

  async restart(role: Role, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    await this.end(role, signal);
    await this.startRole(role);
  }

  /** Kills the database server during the transaction of an order, like a crash of its machine. */
  async restartDatabase(): Promise<void> {
    const client = await this.untilDatabaseAnswers();
    await client.query('BEGIN; LOCK TABLE shop.orders IN EXCLUSIVE MODE');
    const isWaitedFor = async (): Promise<boolean> =>
      (await client.query('SELECT FROM pg_locks WHERE NOT granted')).rowCount! > 0;
    while (!(await isWaitedFor())) await pause(PAUSE);
    await this.crashDatabase();
  }

  /** Kills both processes and the database before it restarts any of them. */
  async restartAll(): Promise<void> {
    await Promise.all([this.end('receiver', 'SIGKILL'), this.end('shop', 'SIGKILL')]);
    await this.crashDatabase();
    await this.start();
  }

  async stop(): Promise<void> {
    await Promise.all((['receiver', 'shop'] as const).map((role) => this.end(role, 'SIGKILL')));
  }

  private async end(role: Role, signal: 'SIGTERM' | 'SIGKILL'): Promise<void> {
    const sample = this.running.get(role);
    this.running.delete(role);
    this.count(`${role} ${signal}`);
    await sample?.stop(signal);
  }

  /** Records the end of a process as a crash, unless {@link end} caused it. */
  private async watch(role: Role, sample: SampleProcess): Promise<void> {
    await sample.exitCode();
    if (this.running.get(role) === sample) {
      this.crashes.push(`The ${role} ended by itself:\n${sample.lines.slice(-30).join('\n')}`);
    }
  }

  private async startRole(role: Role): Promise<void> {
    const args = ['sample/start.mjs', '04-durable-postgres', role];
    const warehouse = this.origins.get('receiver');
    const env = {
      ...SHOP,
      DATABASE_URL: this.server.url,
      PORT: '0',
      WAREHOUSE_PORT: warehouse === undefined ? '0' : new URL(warehouse).port,
      WAREHOUSE_URL: `${warehouse}/webhooks`,
    };
    for (let start = 1; ; start++) {
      const sample = SampleProcess.run(args, env);
      try {
        const [, origin] = await sample.printed(READY_LINES[role]);
        this.origins.set(role, origin!);
        this.running.set(role, sample);
        void this.watch(role, sample);
        return;
      } catch (error) {
        if (start === STARTS) throw error;
      }
    }
  }

  private async crashDatabase(): Promise<void> {
    this.count('database SIGKILL');
    await this.server.kill();
    await this.server.restart();
    const client = await this.untilDatabaseAnswers();
    await client.end();
  }

  /** Retries: during recovery, the server accepts connections but rejects the login. */
  private async untilDatabaseAnswers(): Promise<Client> {
    for (;;) {
      const client = new Client({ connectionString: this.server.url });
      client.on('error', () => {});
      try {
        await client.connect();
        return client;
      } catch {
        await pause(PAUSE);
      }
    }
  }

  private count(restart: string): void {
    this.restarts[restart] = (this.restarts[restart] ?? 0) + 1;
  }
}
