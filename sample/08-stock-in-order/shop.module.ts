import { Module } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import { StockWebhooks } from './stock-webhooks.js';

@Module({
  imports: [
    WebhookModule.forRoot({
      receiver: {
        path: 'webhooks',
        issuers: [{ issuer: process.env.WAREHOUSE_ISSUER!, secret: process.env.WAREHOUSE_SECRET! }],
      },
    }),
  ],
  providers: [StockWebhooks],
})
export class ShopModule {}
