import { Module } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import { OrderWebhooks } from './order-webhooks.js';

@Module({
  imports: [
    WebhookModule.forRoot({
      receiver: {
        path: 'webhooks',
        // If the variable is missing, start-up fails and names it.
        issuers: [{ issuer: process.env.SHOP_ISSUER!, secret: process.env.SHOP_SECRET! }],
      },
    }),
  ],
  providers: [OrderWebhooks],
})
export class AppModule {}
