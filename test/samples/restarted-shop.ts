import { setTimeout as pause } from 'node:timers/promises';
import { Client } from 'pg';
import type { OwnServer } from '../fixtures/own-server.js';
import { SampleProcess } from './sample-process.js';
import { Sender } from './sender.js';

/** A part of the sample that runs in a process of its own, as the sample calls it. */
export type Role = 'shop' | 'receiver';

const { env: SHOP } = new Sender('shop');
const SAYS: Readonly<Record<Role, RegExp>> = {
  shop: /The shop takes orders at (http:\/\/127\.0\.0\.1:\d+)/,
  receiver: /The warehouse receives webhooks at (http:\/\/127\.0\.0\.1:\d+)/,
};
/** How often a process is started that ends before it listens: another's connection may have its port meanwhile. */
const STARTS = 5;
const PAUSE = 20;

/** Sample 04 as its shop and its warehouse, each started again after it was ended, on a database that is as well. */
export class RestartedShop {
  /** How often each was ended, and how. */
  readonly restarts: Record<string, number> = {};
  /** Those that ended though nobody had ended them, and what they had printed last. */
  readonly crashes: string[] = [];

  private readonly running = new Map<Role, SampleProcess>();
  private readonly origins = new Map<Role, string>();

  constructor(private readonly server: OwnServer) {}

  originOf(role: Role): string {
    return this.origins.get(role)!;
  }

  /** Starts both; the warehouse keeps its port from then on. */
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

  /** Ends the server as a crash of its machine would, in the middle of an order's transaction. */
  async restartDatabase(): Promise<void> {
    const client = await this.untilDatabaseAnswers();
    await client.query('BEGIN; LOCK TABLE shop.orders IN EXCLUSIVE MODE');
    const isWaitedFor = async (): Promise<boolean> =>
      (await client.query('SELECT FROM pg_locks WHERE NOT granted')).rowCount! > 0;
    while (!(await isWaitedFor())) await pause(PAUSE);
    await this.crashDatabase();
  }

  /** Ends both and the database, before any of them is started again. */
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

  /** Takes down its end, unless it was {@link end}ed. */
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
        const [, origin] = await sample.printed(SAYS[role]);
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

  /** It takes connections before it has recovered, and refuses them. */
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

  private count(what: string): void {
    this.restarts[what] = (this.restarts[what] ?? 0) + 1;
  }
}
