import { Module } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import { OrderWebhooks } from './order-webhooks.js';

@Module({
  imports: [
    WebhookModule.forRoot({
      receiver: {
        path: 'webhooks',
        // Were a variable missing, the start-up would fail and say so.
        issuers: [{ issuer: process.env.SHOP_ISSUER!, secret: process.env.SHOP_SECRET! }],
      },
    }),
  ],
  providers: [OrderWebhooks],
})
export class AppModule {}
