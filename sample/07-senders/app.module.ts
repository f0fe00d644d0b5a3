import { Module } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import { PartnerWebhooks } from './partner-webhooks.js';
import { senders } from './senders.js';

@Module({
  imports: [
    WebhookModule.forRoot({
      receiver: Object.entries(senders).map(([name, sender]) => ({
        name,
        path: `webhooks/${name}`,
        sender,
        // A body is read before its signature can be verified: no sender needs the 32 MiB of the default.
        maxBodyBytes: 1_048_576,
      })),
    }),
  ],
  providers: [PartnerWebhooks],
})
export class AppModule {}
