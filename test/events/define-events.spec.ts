import { describe, expect, it } from '@jest/globals';
import { Test } from '@nestjs/testing';
import { IsString } from 'class-validator';
import { z } from 'zod';
import {
  defineEvents,
  WebhookConfigurationError,
  WebhookModule,
  type WebhookModuleOptions,
} from 'nestjs-webhook-token';

class Refund {
  @IsString() id!: string;
}

function problemsOf(error: unknown): unknown {
  return error instanceof WebhookConfigurationError
    ? error.problems.map(({ path, message }) => `${path}: ${message}`)
    : error;
}

async function startProblems(options: WebhookModuleOptions): Promise<unknown> {
  const publisher = {
    issuer: 'https://shop.example',
    secret: 'a-secret-of-32-bytes-for-this-test',
  };
  const imports = [WebhookModule.forRoot({ publisher, ...options })];
  return Test.createTestingModule({ imports })
    .compile()
    .then(async (module) => module.close(), problemsOf);
}

describe('defineEvents', () => {
  it('reports every problem with its remedy', () => {
    let problems: unknown;
    try {
      const definitions: object = {
        'order created': {},
        'order.created': { shema: z.string() },
        'order.paid': { schema: z.string(), dto: Refund },
        'order.sent': { schema: Refund, examples: {}, deprecated: 1 },
        'order.lost': null,
      };
      defineEvents(definitions as never);
    } catch (error) {
      problems = problemsOf(error);
    }

    expect(problems).toEqual([
      expect.stringMatching(/^events\["order created"\]: the name must be one or more segments/),
      'events["order.created"].shema: unknown option; did you mean "schema"?',
      'events["order.paid"].dto: cannot be combined with schema: remove one of them',
      expect.stringMatching(
        /^events\["order.sent"\]\.schema: must be a Standard Schema, .* a class as dto$/,
      ),
      'events["order.sent"].examples: must be a list',
      expect.stringContaining('events["order.sent"].deprecated: must be a boolean'),
      'events["order.lost"]: must be an object: { schema, description, examples }',
    ]);
  });

  it('converts a schema to JSON Schema, and prefers one that is set', () => {
    const jsonSchema = { type: 'object' };
    const events = defineEvents({
      'order.created': { schema: z.object({ id: z.string() }) },
      'refund.paid': { dto: Refund, jsonSchema },
      'order.archived': {},
    });

    expect(events.jsonSchema('order.created')).toEqual({
      type: 'object',
      properties: { id: { type: 'string' } },
      required: ['id'],
    });
    expect(events.jsonSchema('refund.paid')).toBe(jsonSchema);
    expect(events.jsonSchema('order.archived')).toBeUndefined();
    expect(() => events.jsonSchema('order.craeted')).toThrow('did you mean "order.created"?');
  });
});

describe('start-up with defined events', () => {
  it('fails for an example that its definition refuses', async () => {
    const events = defineEvents({
      'order.created': { schema: z.object({ id: z.uuid() }), examples: [{ id: 'o-1' }] },
      'refund.paid': { dto: Refund, examples: [{ id: 'r-1' }, { id: 7 as never }] },
    });

    expect(await startProblems({ events })).toEqual([
      'events["order.created"].examples[0]: is not valid data of the event: id invalid_format',
      'events["refund.paid"].examples[1]: is not valid data of the event: id isString',
    ]);
  });

  it('fails for an example that is not JSON, and names its event', async () => {
    const cycle: Record<string, unknown> = {};
    cycle['self'] = cycle;
    const events = defineEvents({
      'order.created': { examples: [{ total: 1 }, { total: 1n }, () => 1] },
      'order.exported': { examples: [Buffer.from('id;total')] },
      'order.paid': { examples: [cycle] },
    });

    expect(await startProblems({ events })).toEqual([
      expect.stringMatching(/^events\["order\.created"\]\.examples\[1\]: is not JSON/),
      expect.stringMatching(/^events\["order\.created"\]\.examples\[2\]: is not JSON/),
      expect.stringMatching(/^events\["order\.exported"\]\.examples\[0\]: is bytes/),
      expect.stringMatching(/^events\["order\.paid"\]\.examples\[0\]: is not JSON/),
    ]);
  });

  it('fails for an example for which the schema throws, and names its event', async () => {
    const url = z.string().transform((one) => new URL(one));
    const examples = ['https://shop.example', 'no url'] as never;
    const events = defineEvents({ 'order.created': { schema: url, examples } });

    expect(await startProblems({ events })).toEqual([
      'events["order.created"].examples[1]: the definition of "order.created" throws, see the cause; report invalid data as an issue instead',
    ]);
  });

  it('fails for a configured endpoint that subscribes to no defined event', async () => {
    const endpoint = { id: 'crm', url: 'https://crm.example/hooks', events: ['order.craeted'] };
    const publisher = {
      issuer: 'https://shop.example',
      secret: 'a-secret-of-32-bytes-for-this-test',
      endpoints: [endpoint],
    };

    expect(
      await startProblems({ events: defineEvents({ 'order.created': {} }), publisher }),
    ).toEqual([
      'publisher.endpoints[0].events[0]: "order.craeted" matches no defined event; did you mean "order.created"?',
    ]);
  });

  it('fails for events that defineEvents has not made', async () => {
    expect(await startProblems({ events: { 'order.created': {} } as never })).toEqual([
      'events: must be the result of defineEvents',
    ]);
  });
});
