import { finished, type Readable } from 'node:stream';
import { WebhookPayloadError } from '../../errors/webhook-payload.error.js';
import { BodyDigests } from '../../token/body-digests.js';
import { hashMismatch, hashRequired, sizeMismatch } from '../../token/payload-refusals.js';
import type { PayloadRule } from '../../token/payload-rule.interface.js';
import type { BodySource, IncomingWebhook } from './incoming-webhook.js';

/** A body that was read to its end. */
export interface ReadBody {
  readonly bytes: Buffer;
  /** `<algorithm>:<hex>`, one for each hash of a `digest` rule. */
  readonly computed: readonly string[];
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
 * Reads a body and digests it as it streams in.
 *
 * @throws {@link WebhookPayloadError} `payload_too_large` as soon as it is, `hash_required` at the first
 *   byte that nothing authenticates, `hash_mismatch` at the first beyond the size the token names,
 *   `payload_incomplete`, `payload_consumed`
 */
export function readBody(
  source: BodySource,
  rule: PayloadRule,
  maxBodyBytes: number,
): Promise<ReadBody> {
  switch (source.kind) {
    case 'stream':
      return readStream(source.stream, rule, maxBodyBytes);
    case 'bytes':
      return Promise.resolve(source.bytes).then((bytes) => takeBytes(bytes, rule, maxBodyBytes));
    case 'consumed':
      return Promise.reject(consumed());
  }
}

function takeBytes(bytes: Uint8Array, rule: PayloadRule, maxBodyBytes: number): ReadBody {
  const intake = new Intake(rule, maxBodyBytes);
  if (bytes.length > 0) intake.take(Buffer.from(bytes));
  return intake.end();
}

function readStream(stream: Readable, rule: PayloadRule, maxBodyBytes: number): Promise<ReadBody> {
  if (stream.readableEnded) return Promise.reject(consumed());
  return new Promise((resolve, reject) => {
    const intake = new Intake(rule, maxBodyBytes);
    // `for await` would destroy the request on the first refusal, and with it the answer's socket.
    const onData = (chunk: Buffer | string): void => {
      try {
        // A stream of the caller's own may give texts.
        intake.take(typeof chunk === 'string' ? Buffer.from(chunk) : chunk);
      } catch (error) {
        settle();
        stream.pause();
        reject(error);
      }
    };
    const onEnd = (): void => {
      settle();
      resolve(intake.end());
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
  private readonly chunks: Buffer[] = [];
  private length = 0;
  private readonly digests: BodyDigests;
  private readonly size: number;

  constructor(
    private readonly rule: PayloadRule,
    private readonly maxBodyBytes: number,
  ) {
    this.digests = new BodyDigests(rule);
    this.size = (rule.kind === 'digest' ? rule.size : undefined) ?? Infinity;
  }

  take(chunk: Buffer): void {
    this.length += chunk.length;
    if (this.length > this.maxBodyBytes) throw tooLarge(this.maxBodyBytes);
    if (this.rule.kind === 'empty') throw hashRequired();
    if (this.length > this.size) throw hashMismatch();
    this.digests.update(chunk);
    this.chunks.push(chunk);
  }

  end(): ReadBody {
    const bytes =
      this.chunks.length === 1 ? this.chunks[0]! : Buffer.concat(this.chunks, this.length);
    return { bytes, computed: this.digests.digests() };
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
