import { Module } from '@nestjs/common';
import { WebhookModule } from 'nestjs-webhook-token';
import { ParcelService } from './parcel.service.js';

@Module({
  imports: [
    WebhookModule.forRoot({
      publisher: {
        issuer: process.env.DEMO_ISSUER!,
        secret: process.env.DEMO_SECRET!,
        endpoints: [{ id: 'receiver', url: process.env.DEMO_RECEIVER_URL! }],
        // Short for the demo; the default waits 5 seconds before the second attempt.
        retry: { schedule: ['0s', '250ms'] },
        // Only for a receiver on this machine.
        allowHttp: true,
        allowedAddresses: ['127.0.0.1'],
      },
    }),
  ],
  providers: [ParcelService],
})
export class AppModule {}
