import {
  createTokenSigner,
  digest,
  type TokenSigner,
  type WebhookTokenInput,
} from 'nestjs-webhook-token/token';

/** A sender for a sample: signs requests, and provides the settings that make the sample trust them. */
export class Sender {
  readonly env: Readonly<Record<string, string>>;
  private readonly signer: TokenSigner;

  constructor(name: string) {
    const issuer = `https://${name}.test`;
    const secret = `secret-of-${name}-in-the-tests-of-the-samples`;
    const prefix = name.toUpperCase();
    this.env = { [`${prefix}_ISSUER`]: issuer, [`${prefix}_SECRET`]: secret };
    this.signer = createTokenSigner({ issuer, key: secret });
  }

  sign(input: WebhookTokenInput): string {
    return this.signer.sign(input) as string;
  }

  signBody(event: string, body: string): { token: string; body: Buffer } {
    const bytes = Buffer.from(body);
    return { token: this.sign({ event, hash: digest('sha256', bytes) }), body: bytes };
  }
}
