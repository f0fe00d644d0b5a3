import { Controller, Param, Post } from '@nestjs/common';
import { APP_FILTER } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import { describe, expect, it } from '@jest/globals';
import {
  WebhookDeliveryError,
  WebhookErrorFilter,
  WebhookModule,
  WebhookPublisher,
  WebhookStoreError,
} from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { RecordingLogger } from '../fixtures/recording-logger.js';

const HOST = 'db.internal:5432';

@Controller('events')
class EventsController {
  constructor(private readonly publisher: WebhookPublisher) {}

  @Post(':case')
  async create(@Param('case') name: string): Promise<unknown> {
    switch (name) {
      case 'unknown-endpoint':
        return this.publisher.send('nobody', 'order.created', {});
      case 'invalid-data':
        return this.publisher.publish('order.created', { total: 1n });
      case 'blocked':
        return this.publisher.send('http://10.0.0.1/', 'order.created', {});
      case 'id-conflict':
        throw new WebhookDeliveryError('id_conflict', 'The id was used before.');
      case 'shutting-down':
        throw new WebhookDeliveryError('shutting_down', 'The application is shutting down.');
      case 'store-unavailable':
        throw new WebhookStoreError('store_unavailable', `${HOST} does not answer.`);
      default:
        throw new WebhookStoreError('schema_behind', `The tables in ${HOST} are old.`);
    }
  }
}

describe.each(adapters)('WebhookErrorFilter on %s', (_, createAdapter) => {
  it.each([
    ['unknown-endpoint', 404, 'unknown_endpoint', 'Not Found', /No endpoint has this id/],
    ['invalid-data', 400, 'invalid_data', 'Bad Request', /data\.total is a BigInt/],
    ['blocked', 400, 'destination_blocked', 'Bad Request', /http:/],
    ['id-conflict', 409, 'id_conflict', 'Conflict', /used before/],
    ['shutting-down', 503, 'shutting_down', 'Service Unavailable', undefined],
    ['store-unavailable', 503, 'store_unavailable', 'Service Unavailable', undefined],
    ['another', 500, 'schema_behind', 'Internal Server Error', undefined],
  ])('answers %s with %i', async (name, status, code, title, detail) => {
    const logger = new RecordingLogger();
    const secret = 'a secret of the test that is long enough';
    const module = await Test.createTestingModule({
      imports: [WebhookModule.forRoot({ publisher: { issuer: 'https://us.example', secret } })],
      controllers: [EventsController],
      providers: [{ provide: APP_FILTER, useClass: WebhookErrorFilter }],
    }).compile();
    const app = module.createNestApplication(createAdapter(), { logger });
    await app.listen(0, '127.0.0.1');
    try {
      const response = await fetch(`${await app.getUrl()}/events/${name}`, { method: 'POST' });
      const text = await response.text();

      expect(response.status).toBe(status);
      expect(response.headers.get('content-type')).toMatch(/^application\/problem\+json/);
      expect(JSON.parse(text)).toEqual({
        type: 'about:blank',
        title,
        status,
        code,
        ...(detail !== undefined && { detail: expect.stringMatching(detail) }),
      });
      expect(text).not.toContain(HOST);
    } finally {
      await app.close();
    }
  });
});
