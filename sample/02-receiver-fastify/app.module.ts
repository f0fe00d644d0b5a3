import { Module } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import { PaymentsController } from './payments.controller.js';
import { StockWebhooks } from './stock-webhooks.js';

@Module({
  imports: [
    WebhookModule.forRoot({
      receiver: [
        {
          name: 'warehouse',
          path: 'webhooks/warehouse',
          issuers: [
            { issuer: process.env.WAREHOUSE_ISSUER!, secret: process.env.WAREHOUSE_SECRET! },
          ],
          maxBodyBytes: 8 * 1024 * 1024,
        },
        {
          // No path: PaymentsController declares the route.
          name: 'payments',
          issuers: [
            {
              issuer: process.env.BANK_ISSUER!,
              secret: process.env.BANK_SECRET!,
              events: ['payment.*'],
            },
          ],
        },
      ],
    }),
  ],
  controllers: [PaymentsController],
  providers: [StockWebhooks],
})
export class AppModule {}
