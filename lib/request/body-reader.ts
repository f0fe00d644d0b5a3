import type { Hash } from 'node:crypto';
import { finished, type Readable } from 'node:stream';
import { WebhookPayloadError } from '../errors/webhook.error.js';
import { BodyDigests, type PayloadRule } from '../token/payload-rule.js';
import { hashMismatch, hashRequired, sizeMismatch } from '../token/payload-refusals.js';
import type { BodySpool, SpoolRoom } from './body-spool.js';
import { MemoryBody, type RequestBody } from './spooled-body.js';
import type { BodySource, IncomingWebhook } from './incoming-webhook.js';

/** A body that was read to its end. */
interface ReadBody {
  readonly body: RequestBody;
  /** `<algorithm>:<hex>`, one for each hash of a `digest` rule. */
  readonly computed: readonly string[];
  /** By {@link BodyIntake.mark}; only for a body that is in a file. */
  readonly mark?: string;
}

/** What is done with a body while it comes in. */
interface BodyIntake {
  readonly rule: PayloadRule;
  readonly maxBodyBytes: number;
  /** For large ones; absent, all are kept in memory. */
  readonly spool?: BodySpool | undefined;
  /** Bytes that the request says it has. */
  readonly declared?: number | undefined;
  /** Starts one more digest over a body that goes to a file, so that nobody has to read it once more for that. */
  readonly mark?: (() => Hash) | undefined;
}

/**
 * Refuses what can be refused from the headers, before a byte is read.
 *
 * @throws {@link WebhookPayloadError} `hash_required`, `hash_mismatch` for another size than the token names,
 *   `payload_too_large` or `unsupported_encoding`
 */
export function checkDeclaredBody(
  { headers, body }: IncomingWebhook,
  rule: PayloadRule,
  maxBodyBytes: number,
): void {
  const atHand = body.kind === 'bytes' ? body.bytes.length : 0;
  const declared = Number(headers.get('content-length') ?? atHand);
  if (declared > maxBodyBytes) throw tooLarge(maxBodyBytes);
  // Where the token names the size, a body without a declared one (chunked) is refused too.
  if (rule.kind === 'digest' && rule.size !== undefined && rule.size !== declared) {
    throw sizeMismatch();
  }
  if (declared > 0 && rule.kind === 'empty') throw hashRequired();
  const encoding = headers.get('content-encoding')?.trim().toLowerCase() ?? 'identity';
  if (encoding !== 'identity' && encoding !== '') {
    throw new WebhookPayloadError(
      'unsupported_encoding',
      'the body has a content encoding: send it as it is, the hash is over the bytes on the wire',
    );
  }
}

/**
 * Reads a body and digests it as it streams in; a large one into a file.
 *
 * @throws {@link WebhookPayloadError} `payload_too_large` as soon as it is, `hash_required` at the first
 *   byte that nothing authenticates, `hash_mismatch` at the first beyond the size the token names,
 *   `payload_incomplete`, `payload_consumed`, `spool_unavailable`
 */
export async function readBody(source: BodySource, options: BodyIntake): Promise<ReadBody> {
  switch (source.kind) {
    case 'stream':
      return readStream(source.stream, options);
    case 'bytes':
      return takeBytes(source.bytes, options);
    case 'consumed':
      throw consumed();
  }
}

async function takeBytes(bytes: Uint8Array, options: BodyIntake): Promise<ReadBody> {
  const intake = new Intake({ ...options, spool: undefined });
  if (bytes.length > 0) intake.take(Buffer.from(bytes));
  return intake.end();
}

async function readStream(stream: Readable, options: BodyIntake): Promise<ReadBody> {
  if (stream.readableEnded) throw consumed();
  const intake = new Intake(options);
  try {
    await drain(stream, intake);
    return await intake.end();
  } catch (error) {
    intake.discard();
    throw error;
  }
}

function drain(stream: Readable, intake: Intake): Promise<void> {
  return new Promise((resolve, reject) => {
    let isSettled = false;
    // `for await` would destroy the request on the first refusal, and with it the answer's socket.
    const onData = (chunk: Buffer | string): void => {
      try {
        // A stream of the caller's own may give texts.
        intake.take(typeof chunk === 'string' ? Buffer.from(chunk) : chunk);
        if (!intake.isBehind) return;
        stream.pause();
        intake.write().then(resume, refuse);
      } catch (error) {
        refuse(error);
      }
    };
    const resume = (): void => {
      if (!isSettled) stream.resume();
    };
    const refuse = (error: unknown): void => {
      settle();
      stream.pause();
      reject(error);
    };
    const onEnd = (): void => {
      settle();
      resolve();
    };
    const unwatch = finished(stream, { writable: false }, (error) => {
      if (!error) return;
      settle();
      reject(
        new WebhookPayloadError(
          'payload_incomplete',
          'the connection ended before the whole body had arrived',
        ),
      );
    });
    const settle = (): void => {
      isSettled = true;
      stream.off('data', onData);
      stream.off('end', onEnd);
      unwatch();
    };
    stream.on('end', onEnd);
    stream.on('data', onData);
  });
}

/** Takes the body in, piece by piece, and holds each piece against rule and bound. */
class Intake {
  private chunks: Buffer[] = [];
  private waiting = 0;
  private length = 0;
  private room: SpoolRoom | undefined;
  private writing: Promise<void> | undefined;
  private mark: Hash | undefined;
  private readonly digests: BodyDigests;
  private readonly size: number;

  constructor(private readonly options: BodyIntake) {
    const { rule } = options;
    this.digests = new BodyDigests(rule);
    this.size = (rule.kind === 'digest' ? rule.size : undefined) ?? Infinity;
  }

  take(chunk: Buffer): void {
    const { rule, maxBodyBytes } = this.options;
    this.length += chunk.length;
    if (this.length > maxBodyBytes) throw tooLarge(maxBodyBytes);
    if (rule.kind === 'empty') throw hashRequired();
    if (this.length > this.size) throw hashMismatch();
    this.digests.update(chunk);
    this.mark?.update(chunk);
    this.chunks.push(chunk);
    this.waiting += chunk.length;
  }

  /** Whether what has gathered is to be written before more is taken. */
  get isBehind(): boolean {
    return this.isLarge && this.waiting >= this.options.spool!.writeAt;
  }

  /** Writes what has gathered to the body's file. */
  write(): Promise<void> {
    this.writing ??= this.writeAll().finally(() => (this.writing = undefined));
    return this.writing;
  }

  async end(): Promise<ReadBody> {
    const computed = this.digests.digests();
    if (!this.isLarge) {
      const { chunks } = this;
      const bytes = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks, this.length);
      return { body: new MemoryBody(bytes), computed };
    }
    await this.write();
    const body = this.room!.body;
    return this.mark === undefined
      ? { body, computed }
      : { body, computed, mark: this.mark.digest('base64url') };
  }

  /** Gives up what it has taken, once it is not being written any more. */
  discard(): void {
    const remove = (): void => this.room?.body.remove();
    if (this.writing === undefined) remove();
    else void this.writing.then(remove, remove);
  }

  private get isLarge(): boolean {
    const { spool, declared = 0 } = this.options;
    return spool !== undefined && Math.max(this.length, declared) > spool.above;
  }

  private async writeAll(): Promise<void> {
    const { spool, declared = 0, mark } = this.options;
    if (this.room === undefined) {
      this.mark = mark?.();
      for (const chunk of this.chunks) this.mark?.update(chunk);
      this.room = await spool!.begin();
      this.room.reserve(declared);
    }
    const { chunks } = this;
    this.chunks = [];
    this.waiting = 0;
    this.room.reserve(this.length);
    await this.room.append(chunks);
  }
}

function consumed(): WebhookPayloadError {
  return new WebhookPayloadError(
    'payload_consumed',
    'the body was read before the webhook guard ran, so its exact bytes are gone: mount body parsers after the application was created, or on other paths',
  );
}

function tooLarge(maxBodyBytes: number): WebhookPayloadError {
  return new WebhookPayloadError(
    'payload_too_large',
    `the body is larger than the ${maxBodyBytes} bytes this receiver takes`,
  );
}
