import { randomUUID } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { ScriptProcess } from '../fixtures/child-process.mjs';
import { dropJobs } from '../fixtures/drop-jobs.mjs';
import { freePort } from '../fixtures/free-port.js';
import { describeWith, urlOf } from '../fixtures/services.js';

jest.setTimeout(300_000);

const SCRIPT = new URL('traced-app.process.mjs', import.meta.url);

interface Span {
  readonly name: string;
  readonly id: string;
  readonly trace: string;
  readonly parent?: string;
  readonly links: readonly string[];
}

interface Place {
  readonly name: string;
  readonly directory: string;
  readonly redis: string;
  readonly postgres: string;
}

/** A process of the script, and what it has printed. */
class TracedApp {
  private readonly printed = new Map<string, string>();
  private readonly lines = new EventEmitter();
  private readonly child: ScriptProcess;

  constructor(settings: object) {
    this.child = new ScriptProcess(SCRIPT, settings, (word, rest = '') => {
      this.printed.set(word, rest);
      this.lines.emit(word);
    });
  }

  async said(word: string): Promise<string> {
    if (!this.printed.has(word)) await once(this.lines, word);
    return this.printed.get(word)!;
  }

  async end(): Promise<readonly Span[]> {
    this.child.send('end');
    const spans = JSON.parse(decodeURIComponent(await this.said('spans'))) as Span[];
    await this.child.ended();
    return spans;
  }
}

/** `name < parent ~ linked`, with the names of the spans. */
function describeSpans(spans: readonly Span[]): readonly string[] {
  const nameOf = (id: string | undefined): string =>
    spans.find((one) => one.id === id)?.name ?? 'none';
  return spans
    .map(({ name, parent, links }) =>
      [`${name} < ${nameOf(parent)}`, ...links.map(nameOf)].join(' ~ '),
    )
    .sort();
}

const EXPECTED = [
  'HEAD /webhooks < send order.created',
  'checkout < none',
  'process order.created < HEAD /webhooks',
  'publish order.created < checkout',
  'send order.created < checkout ~ publish order.created',
];

describe.each([
  ['memory', describe],
  ['pglite', describe],
  ['postgres', await describeWith('PostgreSQL')],
  ['bullmq', await describeWith('Redis')],
] as const)('two processes with a queue on %s', (engine, describeEngine) => {
  let place: Place;
  beforeEach(async () => {
    place = {
      name: `trace_${randomUUID().slice(0, 8)}`,
      directory: await mkdtemp(join(tmpdir(), 'webhook-trace-')),
      redis: urlOf('Redis'),
      postgres: urlOf('PostgreSQL'),
    };
  });
  afterEach(async () => {
    await dropJobs(engine, place);
    await rm(place.directory, { recursive: true, force: true });
  });

  describeEngine('share a trace', () => {
    it('from the publish in one to the attempt and the handler in the other', async () => {
      const port = await freePort();
      const shared = { engine, place, port };
      const isDurable = engine !== 'memory';
      // In memory, the publishing process makes the attempt too, and the other one only receives.
      const receiver = isDurable ? undefined : new TracedApp({ ...shared, role: 'deliver' });
      await receiver?.said('ready');
      // A durable queue holds the event until the other process makes it due.
      const sender = new TracedApp({ ...shared, role: 'publish', delay: isDurable ? '1h' : 0 });
      const recorded = await sender.said('ready');
      if (!isDurable) await receiver!.said('handled');
      const sent = await sender.end();
      const other = receiver ?? new TracedApp({ ...shared, role: 'deliver', recorded });
      await other.said('handled');
      const received = await other.end();

      const spans = [...sent, ...received];
      expect(describeSpans(spans)).toEqual(EXPECTED);
      expect(new Set(spans.map(({ trace }) => trace)).size).toBe(1);
      expect(sent.map(({ name }) => name).includes('send order.created')).toBe(!isDurable);
    });
  });
});
