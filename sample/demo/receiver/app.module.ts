import { Module } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import { DemoWebhooks } from './demo-webhooks.js';
import { Logbook } from './logbook.js';

@Module({
  imports: [
    WebhookModule.forRoot({
      receiver: {
        path: 'webhooks',
        issuers: [{ issuer: process.env.DEMO_ISSUER!, secret: process.env.DEMO_SECRET! }],
      },
    }),
  ],
  providers: [DemoWebhooks, Logbook],
})
export class AppModule {}
