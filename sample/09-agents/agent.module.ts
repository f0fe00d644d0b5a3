import { generateKeyPairSync } from 'node:crypto';
import { Module } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';

export const AGENT = 'https://agent.example';

/** A real agent keeps its key. */
const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2_048 });

@Module({
  imports: [
    WebhookModule.forRoot({
      publisher: {
        issuer: AGENT,
        key: { kid: 'agent-1', alg: 'RS256', key: privateKey },
        // Published at /.well-known/webhook-keys.
        jwks: true,
        method: 'POST',
        // Agent and client run on this machine; clients choose the URLs, so never in production.
        allowHttp: true,
        allowPrivateNetworks: true,
      },
    }),
  ],
})
export class AgentModule {}
