import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { asJson, type WebhookEventCatalog } from '../events/event-catalog.js';
import { isObject, parseJson } from '../token/json.js';
import { isJsonType } from '../token/payload.js';
import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';
import { readClaims } from './in-memory-webhook.transport.js';

/** An event as it was sent: a `SentWebhook`, or the content of a recorded file. */
export interface RecordedEvent {
  /** The event's name. */
  readonly event: string;
  /** Absent for an event without data. */
  readonly data?: unknown;
}

/**
 * Writes the data of events to files for {@link expectCompatible}, one for each name and content. Data that is not JSON is left
 * out, and so are tests of endpoints (`webhook.test`) and events without a name.
 *
 * ```ts
 * await recordEvents('test/recorded', transport.sent);
 * ```
 *
 * @param folder - created if it is missing
 */
export async function recordEvents(
  folder: string,
  recordings: readonly RecordedEvent[],
): Promise<void> {
  await mkdir(folder, { recursive: true });
  for (const { event, data } of recordings) {
    if (data instanceof Uint8Array || !isDefinable(event)) continue;
    const content = `${JSON.stringify({ event, data }, undefined, 2)}\n`;
    const mark = createHash('sha256').update(content).digest('hex').slice(0, 8);
    await writeFile(join(folder, `${event}.${mark}.json`), content);
  }
}

/**
 * Checks that definitions still accept what was sent before, so that a change to a schema does not break a receiver that has it, or
 * refuse events that wait in a queue.
 *
 * @param recordings - events, or the path of a file or folder that {@link recordEvents} or `send --record` has written
 * @throws Error that names the first recording which is not accepted, and what is wrong with it; also if there is no recording
 */
export async function expectCompatible(
  events: WebhookEventCatalog,
  recordings: string | readonly RecordedEvent[],
): Promise<void> {
  const found: readonly Recording[] =
    typeof recordings === 'string'
      ? await readRecordings(recordings)
      : recordings.map(({ event, data }, index) => ({ event, data, name: `recording ${index}` }));
  const all = found.filter(({ event }) => isDefinable(event));
  if (all.length === 0) {
    throw new Error(
      'There is no recording to check: record events with recordEvents, or correct the path.',
    );
  }
  for (const { event, data, name } of all) {
    if (events.find(event) === undefined) {
      throw new Error(
        `${name}: "${event}" is not defined any more; keep its definition, deprecated, as long as it may be sent.`,
      );
    }
    const issues = await events.check(event, asJson(data));
    if (issues.length === 0) continue;
    const list = issues.map(({ constraint, message }) => `\n  - ${constraint} (${message})`);
    throw new Error(
      `${name}: "${event}" does not accept this data any more:${list.join('')}\nMake the change additive, or define the new form under a new name, such as "${event}.v2".`,
    );
  }
}

/** Whether an application defines the event: `endpoints.test(id)` sends `webhook.test`, and other senders may send no name. */
function isDefinable(event: string): boolean {
  return event !== '' && event !== 'webhook.test';
}

interface Recording extends RecordedEvent {
  readonly name: string;
}

async function readRecordings(path: string): Promise<Recording[]> {
  const isFolder = (await stat(path)).isDirectory();
  const files = isFolder
    ? (await readdir(path, { recursive: true }))
        .filter((file) => file.endsWith('.json'))
        .sort()
        .map((file) => join(path, file))
    : [path];
  return Promise.all(files.map(readRecording));
}

/** Reads a file of {@link recordEvents}, or a request of the command `send --record`. */
async function readRecording(name: string): Promise<Recording> {
  const content = parseJson(await readFile(name, 'utf8'));
  if (!isObject(content)) throw notRecorded(name, 'it is not a JSON object');
  const { event, data, headers, ...request } = content;
  if (typeof event === 'string') return { name, event, data };
  const named = Object.entries(headers ?? {}).map(
    ([header, value]) => [header.toLowerCase(), String(value)] as const,
  );
  const { authorization = '', 'content-type': contentType = 'application/json' } =
    Object.fromEntries(named) as Record<string, string | undefined>;
  const claims = readClaims(authorization.replace(/^Bearer /i, ''));
  if (claims === undefined) {
    throw notRecorded(name, 'it has neither "event" nor a request with a webhook token');
  }
  return { name, event: claims.webhook.event, data: dataOf(request, claims, contentType, name) };
}

function dataOf(
  { body, bodyBase64 }: { readonly body?: unknown; readonly bodyBase64?: unknown },
  { webhook }: WebhookTokenClaims,
  contentType: string,
  name: string,
): unknown {
  if (typeof bodyBase64 === 'string') return Buffer.from(bodyBase64, 'base64');
  if (body === undefined) return webhook.data;
  if (typeof body !== 'string') throw notRecorded(name, 'its "body" is not a string');
  if (!isJsonType(contentType)) return Buffer.from(body);
  const data = parseJson(body);
  if (data === undefined) {
    throw notRecorded(name, `its "body" is not JSON, although its type is ${contentType}`);
  }
  return data;
}

function notRecorded(name: string, reason: string): Error {
  return new Error(
    `${name} is not a recording: ${reason}. Record the event again, or remove the file.`,
  );
}
