import { Readable, type Writable } from 'node:stream';
import { WebhookPayloadError } from '../errors/webhook.error.js';
import { hashMismatch, hashRequired } from '../token/payload-hash.js';
import type { BodySpool, SpooledBody } from './body-spool.js';
import { BodyDigests, ByteChunks, isUtf8, mediaType, type PayloadRule } from '../token/payload.js';
import type { BodySource, IncomingWebhook } from './webhook-scheme.js';

/** A request's body. It can be read any number of times until it is removed. */
export interface RequestBody {
  /** In bytes. */
  readonly length: number;
  /** Reads all of it into memory. */
  read(): Promise<Buffer>;
  /** Like {@link read}, but blocks the event loop. */
  readNow(): Buffer;
  /** Streams it as Buffers; every call starts at the beginning. */
  stream(): Readable;
  /** Releases its memory or file, after reads in progress have ended. */
  remove(): void;
}

export class MemoryBody implements RequestBody {
  constructor(private readonly bytes: Buffer) {}

  get length(): number {
    return this.bytes.length;
  }

  async read(): Promise<Buffer> {
    return this.bytes;
  }

  readNow(): Buffer {
    return this.bytes;
  }

  stream(): Readable {
    return Readable.from(this.bytes.length === 0 ? [] : [this.bytes], { objectMode: false });
  }

  remove(): void {
    // Garbage collection frees the memory.
  }
}

export const NO_BODY: RequestBody = new MemoryBody(Buffer.alloc(0));

interface ReadBody {
  readonly body: RequestBody;
  /** What {@link BodyDigests} computed of it. */
  readonly computed: readonly string[];
}

interface ReadOptions {
  readonly rule: PayloadRule;
  readonly maxBodyBytes: number;
  /** Stores large bodies; without it all stay in memory. */
  readonly spool?: BodySpool | undefined;
  /** The `Content-Length` of the request. */
  readonly declared?: number | undefined;
}

/**
 * Checks what the headers declare about the body, before a byte of it is read.
 *
 * @throws {@link WebhookPayloadError} `hash_required`, `hash_mismatch` if the size differs from the token's,
 *   `payload_too_large` or `unsupported_encoding`
 */
export function checkDeclaredBody(
  incoming: IncomingWebhook,
  rule: PayloadRule,
  maxBodyBytes: number,
): void {
  const { headers } = incoming;
  const declared = declaredLength(incoming);
  if (declared > maxBodyBytes) throw tooLarge(maxBodyBytes);
  // If the token names the size, a body without a declared size (chunked) is refused too.
  if (rule.kind === 'digest' && rule.size !== undefined && rule.size !== declared) {
    throw new WebhookPayloadError(
      'hash_mismatch',
      'the request must declare, by Content-Length, the size that the token names for its body',
    );
  }
  if (declared > 0 && rule.kind === 'empty') throw hashRequired();
  const encoding = headers.get('content-encoding')?.trim().toLowerCase() ?? 'identity';
  if (encoding !== 'identity' && encoding !== '') {
    throw new WebhookPayloadError(
      'unsupported_encoding',
      'the body has a content encoding: send it without one, because the hash covers the bytes on the wire',
    );
  }
}

/**
 * Refuses a body of a content type that the receiver does not accept.
 *
 * The token does not sign the Content-Type header. A charset other than UTF-8 is therefore refused too: with it, an
 * intermediary could change what an authentic body means.
 *
 * @param accepted - media types in lower case, such as `application/json` or `text/*`
 * @throws {@link WebhookPayloadError} `unsupported_content_type`
 */
export function checkContentType({ headers }: IncomingWebhook, accepted: readonly string[]): void {
  const contentType = headers.get('content-type') ?? '';
  const type = mediaType(contentType);
  const family = `${type.split('/', 1)[0]}/*`;
  if (!accepted.includes(type) && !accepted.includes(family)) {
    throw new WebhookPayloadError(
      'unsupported_content_type',
      `the content type is not accepted from this issuer: send ${accepted.join(' or ')}`,
    );
  }
  if (!isUtf8(contentType)) {
    throw new WebhookPayloadError(
      'unsupported_content_type',
      'the charset is not accepted from this issuer: send UTF-8',
    );
  }
}

/** Whether a request declares a body. One over HTTP/2, or one that is a stream of the application, may have a body without that. */
export function declaresBody(incoming: IncomingWebhook): boolean {
  return incoming.headers.get('transfer-encoding') !== undefined || declaredLength(incoming) > 0;
}

function declaredLength({ headers, body }: IncomingWebhook): number {
  const atHand = body.kind === 'bytes' ? body.bytes.length : 0;
  return Number(headers.get('content-length') ?? atHand);
}

/**
 * Reads a body and computes its digests while it arrives; a large body goes to a file.
 *
 * @throws {@link WebhookPayloadError} `payload_too_large` at the first byte over the limit, `hash_required` at the first
 *   byte that no hash covers, `hash_mismatch` at the first byte over the size in the token, `payload_incomplete`,
 *   `payload_consumed`, `spool_unavailable`
 */
export async function readBody(source: BodySource, options: ReadOptions): Promise<ReadBody> {
  switch (source.kind) {
    case 'stream':
      return await readStream(source.stream, options);
    case 'bytes':
      return await readBytes(source.bytes, options);
    case 'consumed':
      throw payloadConsumed(source.remedy);
  }
}

function readBytes(bytes: Uint8Array, options: ReadOptions): Promise<ReadBody> {
  const collector = new BodyCollector({ ...options, spool: undefined });
  if (bytes.length > 0) collector.add(Buffer.from(bytes));
  return collector.end();
}

function readStream(stream: Readable, options: ReadOptions): Promise<ReadBody> {
  return new Promise((resolve, reject) => {
    if (stream.readableDidRead || stream.readableEnded) throw payloadConsumed();
    // Its 'close' may have been emitted already.
    if (stream.destroyed) throw payloadIncomplete();
    const collector = new BodyCollector(options);
    let isSettled = false;
    // `for await` would destroy the request on a refusal, and with it the socket of the answer.
    const onData = (chunk: Buffer | string): void => {
      try {
        // A stream from the application may emit strings.
        collector.add(typeof chunk === 'string' ? Buffer.from(chunk) : chunk);
        if (!collector.isBehind) return;
        stream.pause();
        collector.write().then(resume, refuse);
      } catch (error) {
        refuse(error);
      }
    };
    const resume = (): void => {
      if (!isSettled) stream.resume();
    };
    const refuse = (error: unknown): void => {
      settle();
      // If the stream fails later, its error must not end the process.
      stream.on('error', ignore).pause();
      resumeAfterAnswer(stream);
      collector.discard();
      reject(error);
    };
    const onEnd = (): void => {
      settle();
      collector.end().then(resolve, (error: unknown) => {
        collector.discard();
        reject(error);
      });
    };
    const onCut = (): void => {
      settle();
      collector.discard();
      reject(payloadIncomplete());
    };
    // Cheaper than `finished` of `node:stream` (benchmark `receive`, POST with 1 kB).
    const settle = (): void => {
      isSettled = true;
      stream.off('data', onData).off('end', onEnd).off('close', onCut).off('error', onCut);
    };
    stream.on('end', onEnd).on('close', onCut).on('error', onCut).on('data', onData);
    // A hook may have piped it into a stream that no one reads on a route for webhooks, and that would stop it when it is full.
    stream.unpipe().resume();
  });
}

function ignore(): void {}

/** In HTTP/2, a stream with unread bytes stays open after its answer, and keeps the server from closing. */
function resumeAfterAnswer(request: Readable & { readonly stream?: Writable }): void {
  request.stream?.once('finish', () => request.resume());
}

/** Collects the chunks of a body and checks each one against the rule and the limits. */
class BodyCollector {
  private readonly buffered = new ByteChunks();
  private length = 0;
  private file: SpooledBody | undefined;
  private writing: Promise<void> | undefined;
  private discarding: AbortController | undefined;
  private readonly digests: BodyDigests;
  private readonly size: number;

  constructor(private readonly options: ReadOptions) {
    const { rule } = options;
    this.digests = new BodyDigests(rule);
    this.size = (rule.kind === 'digest' ? rule.size : undefined) ?? Infinity;
  }

  add(chunk: Buffer): void {
    const { rule, maxBodyBytes } = this.options;
    this.length += chunk.length;
    if (this.length > maxBodyBytes) throw tooLarge(maxBodyBytes);
    if (rule.kind === 'empty') throw hashRequired();
    if (this.length > this.size) throw hashMismatch();
    this.digests.update(chunk);
    this.buffered.add(chunk);
  }

  /** Whether the buffered chunks must be written before more are read. */
  get isBehind(): boolean {
    return this.isLarge && this.buffered.length >= this.options.spool!.writeAt;
  }

  write(): Promise<void> {
    this.writing ??= this.writeAll().finally(() => (this.writing = undefined));
    return this.writing;
  }

  async end(): Promise<ReadBody> {
    const computed = this.digests.digests();
    if (this.isLarge) {
      await this.write();
      return { body: this.file!, computed };
    }
    return { body: new MemoryBody(this.buffered.bytes()), computed };
  }

  /** Removes the body's file, after a write in progress has ended. */
  discard(): void {
    this.discarding?.abort();
    const remove = (): void => this.file?.remove();
    if (this.writing === undefined) remove();
    else this.options.spool!.removing(this.writing.then(remove, remove));
  }

  private get isLarge(): boolean {
    const { spool, declared = 0 } = this.options;
    return spool !== undefined && Math.max(this.length, declared) > spool.above;
  }

  private async writeAll(): Promise<void> {
    const { spool, declared = 0 } = this.options;
    const { signal } = (this.discarding ??= new AbortController());
    if (this.file === undefined) {
      this.file = await spool!.create();
      await this.file.reserve(declared, signal);
    }
    await this.file.reserve(this.length, signal);
    await this.file.append(this.buffered.take());
  }
}

function payloadConsumed(
  remedy = 'add body parsers after NestFactory.create(), or on other paths only',
): WebhookPayloadError {
  return new WebhookPayloadError(
    'payload_consumed',
    `the application read the body before the webhook guard, so its exact bytes are lost: ${remedy}`,
  );
}

function payloadIncomplete(): WebhookPayloadError {
  return new WebhookPayloadError(
    'payload_incomplete',
    'the connection ended before the whole body had arrived',
  );
}

function tooLarge(maxBodyBytes: number): WebhookPayloadError {
  return new WebhookPayloadError(
    'payload_too_large',
    `the body is larger than the ${maxBodyBytes} bytes that this receiver accepts`,
  );
}
