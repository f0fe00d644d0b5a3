import { Module } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import { OrdersController } from './orders.controller.js';
import { OrdersService } from './orders.service.js';
import { PartnersController } from './partners.controller.js';

@Module({
  imports: [
    WebhookModule.forRoot({
      publisher: {
        issuer: process.env.SHOP_ISSUER!,
        secret: process.env.SHOP_SECRET!,
        endpoints: [{ id: 'crm', url: process.env.CRM_URL!, events: ['order.*'] }],
        // Short for the sample; the default waits five minutes before the third attempt.
        retry: { schedule: ['0s', '1s', '2s', '5s'] },
        // Only for a receiver on this machine. By default, deliveries go to public addresses over HTTPS.
        allowHttp: true,
        allowedAddresses: ['127.0.0.1'],
      },
    }),
  ],
  controllers: [OrdersController, PartnersController],
  providers: [OrdersService],
})
export class AppModule {}
