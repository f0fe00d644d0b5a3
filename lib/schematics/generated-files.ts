/** Files of the receiver, by name below `src/webhooks`. `extension` ends relative imports. */
export function receiverFiles(extension: '.js' | ''): Readonly<Record<string, string>> {
  return {
    'webhooks.module.ts': `import { Module } from '@nestjs/common';
import { ConfigModule, ConfigService } from '@nestjs/config';
import { WebhookModule } from 'nestjs-webhook-token';
import { OrderWebhooks } from './order.webhooks${extension}';

@Module({
  imports: [
    WebhookModule.forRootAsync({
      imports: [ConfigModule],
      inject: [ConfigService],
      useFactory: (config: ConfigService) => ({
        receiver: {
          path: 'webhooks',
          issuers: [
            {
              issuer: config.getOrThrow<string>('WEBHOOK_ISSUER'),
              secret: config.getOrThrow<string>('WEBHOOK_SECRET'),
            },
          ],
        },
      }),
    }),
  ],
  providers: [OrderWebhooks],
})
export class WebhooksModule {}
`,
    'order.webhooks.ts': `import { Injectable, Logger } from '@nestjs/common';
import { IsInt, IsString } from 'class-validator';
import { OnWebhookEvent, WebhookEvent } from 'nestjs-webhook-token';

export class OrderCreated {
  @IsString() id!: string;
  @IsInt() total!: number;
}

@Injectable()
export class OrderWebhooks {
  private readonly logger = new Logger(OrderWebhooks.name);

  // If this method throws, the sender repeats the event.
  @OnWebhookEvent('order.created')
  onCreated(order: OrderCreated, event: WebhookEvent): void {
    this.logger.log(\`\${event.issuer} has a new order: \${order.id}\`);
  }
}
`,
    'order.webhooks.spec.ts': `import type { INestApplication } from '@nestjs/common';
import { ConfigService } from '@nestjs/config';
import { Test } from '@nestjs/testing';
import { deliverWebhook, overrideWebhooks } from 'nestjs-webhook-token/testing';
import { WebhooksModule } from './webhooks.module${extension}';

const shop = {
  issuer: 'https://shop.example',
  secret: 'a-secret-for-tests-of-32-bytes-min',
};
const environment: Record<string, string> = {
  WEBHOOK_ISSUER: shop.issuer,
  WEBHOOK_SECRET: shop.secret,
};

describe('OrderWebhooks', () => {
  let app: INestApplication;

  beforeAll(async () => {
    const builder = Test.createTestingModule({ imports: [WebhooksModule] })
      .overrideProvider(ConfigService)
      .useValue({ getOrThrow: (name: string) => environment[name] });
    const testing = await overrideWebhooks(builder).compile();
    app = testing.createNestApplication();
  });
  afterAll(() => app.close());

  it('handles an order', async () => {
    const order = { id: 'o1', total: 3 };

    const answer = await deliverWebhook(app, 'order.created', order, shop);

    expect(answer).toMatchObject({ status: 204, outcome: 'handled' });
  });

  it('refuses an order without a total', async () => {
    const invalid = { id: 'o1' } as never; // 'as never' still compiles once the event has a type

    const answer = await deliverWebhook(app, 'order.created', invalid, shop);

    expect(answer).toMatchObject({ status: 422, code: 'invalid_payload' });
  });
});
`,
  };
}

/** The comment above the variables of a `.env` file. */
export const ENVIRONMENT_COMMENT = '# Webhooks: their sender, and the secret that both sides share';

/** The issuer of a `.env` file. */
export const EXAMPLE_ISSUER = 'https://shop.example';

/** Test values for the end-to-end tests of the application, which import its root module. */
export const TEST_ENVIRONMENT = `// Values for end-to-end tests, so that they run without the git-ignored .env.
process.env.WEBHOOK_ISSUER ??= 'https://shop.example';
process.env.WEBHOOK_SECRET ??= 'a-secret-for-tests-of-32-bytes-min';
`;

/**
 * Lets Jest load this package, which is an ES module. `useESM` keeps it one where Jest has `--experimental-vm-modules`. pnpm installs
 * packages below `.pnpm`.
 */
export const JEST_ENTRIES = {
  transform: {
    '/node_modules/.+\\.js$': [
      'ts-jest',
      { useESM: true, tsconfig: { allowJs: true, module: 'esnext' }, diagnostics: false },
    ],
  },
  transformIgnorePatterns: [
    '/node_modules/(?!(\\.pnpm|nestjs-webhook-token|jose|@noble/hashes|@nestjs/axios)/)',
  ],
} as const;
