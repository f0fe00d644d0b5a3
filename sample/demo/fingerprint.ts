import { digest } from 'nestjs-webhook-token/token';

/** Size and digest of data, to compare what was sent with what arrived. */
export interface Fingerprint {
  readonly bytes: number;
  readonly digest: string;
}

export function fingerprintOf(data: unknown): Fingerprint {
  const bytes = Buffer.isBuffer(data) ? data : Buffer.from(JSON.stringify(data));
  return { bytes: bytes.length, digest: digest('sha256', bytes) };
}
