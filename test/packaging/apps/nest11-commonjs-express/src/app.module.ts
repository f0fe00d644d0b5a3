import { Module } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import { WebhookConsoleModule } from 'nestjs-webhook-token/console';
import { OrderWebhooks } from './orders.webhooks';

@Module({
  imports: [
    WebhookModule.forRoot({
      receiver: {
        path: 'webhooks',
        issuers: [{ issuer: 'https://shop.example', secret: process.env.SHOP_SECRET! }],
      },
      publisher: {
        issuer: 'https://billing.example',
        secret: process.env.SHOP_SECRET!,
        allowHttp: true,
        allowedAddresses: ['127.0.0.1/32'],
      },
    }),
    WebhookConsoleModule.forRoot({ brand: { name: 'Orders' } }),
  ],
  providers: [OrderWebhooks],
})
export class AppModule {}
