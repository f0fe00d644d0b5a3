import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { once } from 'node:events';
import { adapters } from '../fixtures/adapters.js';
import {
  HostileTarget,
  outcome,
  postRequest,
  requestHead,
  WEBHOOK_PATHS,
} from '../fixtures/hostile-target.js';
import type { RawConnection } from '../fixtures/raw-client.js';
import { signed, signedBody } from '../fixtures/receiver-app.js';

/** A request that an attacker smuggles: one parser sees part of a body, another a request. */
const STRAY = requestHead('GET', '/stray', []);

const authorization = (token = signed()): string => `Authorization: Bearer ${token}`;

/** A POST with the given framing headers, and a token for `text`. */
function framedTo(way: string, text: string, headers: string[], wire: string): string {
  const head = [authorization(signedBody(text).token), 'Content-Type: application/json'];
  return requestHead('POST', way, [...head, ...headers]) + wire;
}

describe.each(adapters)('framing of a hostile sender on %s', (_, createAdapter) => {
  let target: HostileTarget;

  beforeAll(async () => (target = await HostileTarget.start(createAdapter())));
  afterAll(() => target.close());

  describe('is rejected by Node before a handler runs', () => {
    it.each<[string, string[], string]>([
      ['two equal lengths', ['Content-Length: 2', 'Content-Length: 2'], '{}'],
      ['two different lengths', ['Content-Length: 2', 'Content-Length: 3'], '{} '],
      ['a list of lengths', ['Content-Length: 2, 2'], '{}'],
      ['a length with a plus sign', ['Content-Length: +2'], '{}'],
      ['a negative length', ['Content-Length: -2'], '{}'],
      ['a length in hexadecimal', ['Content-Length: 0x2'], '{}'],
      [
        'a length and chunks',
        ['Content-Length: 2', 'Transfer-Encoding: chunked'],
        '2\r\n{}\r\n0\r\n\r\n',
      ],
      [
        'chunks and a length',
        ['Transfer-Encoding: chunked', 'Content-Length: 2'],
        '2\r\n{}\r\n0\r\n\r\n',
      ],
      ['chunked not as the last coding', ['Transfer-Encoding: chunked, gzip'], '0\r\n\r\n'],
      ['an unknown transfer coding', ['Transfer-Encoding: xchunked'], '2\r\n{}\r\n0\r\n\r\n'],
      ['a chunk size that is not a number', ['Transfer-Encoding: chunked'], 'zz\r\n{}\r\n'],
      ['a chunk size with a sign', ['Transfer-Encoding: chunked'], '-2\r\n{}\r\n0\r\n\r\n'],
      ['a huge chunk size', ['Transfer-Encoding: chunked'], `${'f'.repeat(20)}\r\n`],
      ['a chunk longer than its size', ['Transfer-Encoding: chunked'], '1\r\n{}\r\n0\r\n\r\n'],
    ])('%s', async (_name, headers, wire) => {
      await target.survives('/webhooks', 0, async (connection) => {
        connection.write(framedTo('/webhooks', '{}', headers, wire));

        expect(outcome(await connection.answer())).toEqual([400, undefined]);
        expect(await connection.rest()).toBe('');
      });
    });
  });

  it('survives a thousand connections that send nothing', async () => {
    await target.survives('/webhooks', 0, async () => {
      const silent = await Promise.all(Array.from({ length: 1_000 }, () => target.connect()));
      for (const connection of silent) connection.destroy();
    });
  });

  describe.each(WEBHOOK_PATHS)('at %s', (way) => {
    const framed = (text: string, headers: string[], wire: string): string =>
      framedTo(way, text, headers, wire);

    it.each<[string, string[]]>([
      ['a length', ['Content-Length: 7']],
      ['a length far larger than the body', ['Content-Length: 20000000']],
      ['chunks', ['Transfer-Encoding: chunked']],
    ])('handles no body that ends early (FIN), declared by %s', async (_name, headers) => {
      await target.survives(way, 0, async (connection) => {
        const part = headers[0]!.startsWith('T') ? '7\r\n{"a":' : '{"a":';
        connection.write(framed('{"a":1}', headers, part)).end();

        expect(outcome(await connection.answer())).toEqual([400, undefined]);
      });
    });

    it.each<[string, string[]]>([
      ['a length', ['Content-Length: 7']],
      ['chunks', ['Transfer-Encoding: chunked']],
    ])('handles no body whose connection is reset, declared by %s', async (_name, headers) => {
      await target.survives(way, 0, async (connection) => {
        const requested = once(target.server, 'request');
        const part = headers[0]!.startsWith('T') ? '7\r\n{"a":' : '{"a":';
        connection.write(framed('{"a":1}', headers, part));
        await requested;
        connection.reset();
      });
    });

    it('excludes bytes after a too small length from the event', async () => {
      await target.survives(way, 1, async (connection) => {
        connection.write(framed('{}', ['Content-Length: 2'], '{}'));
        expect(outcome(await connection.answer())).toEqual([204, undefined]);

        connection.write(',"more":1}');
        expect(outcome(await connection.answer())).toEqual([400, undefined]);
        expect(await connection.rest()).toBe('');
      });
    });

    it('answers 400 if the rest after a too small length is in the same packet', async () => {
      await target.survives(way, 1, async (connection) => {
        connection.write(framed('{}', ['Content-Length: 2'], '{},"more":1}'));

        expect(outcome(await connection.answer())).toEqual([400, undefined]);
        expect(await connection.rest()).toBe('');
      });
    });

    it('requires a valid token for a webhook after a too small length', async () => {
      await target.survives(way, 1, async (connection) => {
        const hidden = requestHead('POST', way, ['Content-Length: 2']) + '{}';
        connection.write(framed('{}', ['Content-Length: 2'], `{}${hidden}`));

        expect(outcome(await connection.answer())).toEqual([204, undefined]);
        expect(outcome(await connection.answer())).toEqual([401, 'missing_token']);
      });
    });

    it('does not run a request inside the body of another', async () => {
      await target.survives(way, 1, async (connection) => {
        connection.write(framed(STRAY, [`Content-Length: ${STRAY.length}`], STRAY));

        expect(outcome(await connection.answer())).toEqual([400, 'invalid_payload']);
        connection.write(postRequest(way, '{}'));
        expect(outcome(await connection.answer())).toEqual([204, undefined]);
      });
    });

    it('accepts chunks of one byte, with extensions and trailers', async () => {
      await target.survives(way, 1, async (connection) => {
        const text = '{"a":[1,2,3]}';
        const chunks = text
          .split('')
          .map((byte) => `1;name=value\r\n${byte}\r\n`)
          .join('');
        const trailers = 'Authorization: Bearer x\r\nContent-Type: text/plain\r\n';
        connection.write(
          framed(text, ['Transfer-Encoding: chunked'], `${chunks}0\r\n${trailers}\r\n`),
        );

        expect(outcome(await connection.answer())).toEqual([204, undefined]);
        expect(target.events.at(-1)?.data).toEqual({ a: [1, 2, 3] });
      });
    });

    describe('answers a HEAD that declares a body, then closes the connection', () => {
      const headDeclaring = (headers: string[]): string =>
        requestHead('HEAD', way, [authorization(), 'Content-Type: application/json', ...headers]);

      const expectLastAnswer = async (connection: RawConnection): Promise<void> => {
        const answer = await connection.answer('HEAD');
        expect(outcome(answer)).toEqual([204, undefined]);
        expect(answer?.headers['connection']).toBe('close');
        expect(await connection.rest()).toBe('');
      };

      it.each<[string, string[]]>([
        ['a length', ['Content-Length: 245']],
        ['a length of 00', ['Content-Length: 00']],
        ['chunks', ['Transfer-Encoding: chunked']],
        ['an expectation', ['Content-Length: 245', 'Expect: 100-continue']],
      ])('if it declares %s and sends no body', async (_name, headers) => {
        await target.survives(way, 1, async (connection) => {
          connection.write(headDeclaring(headers));

          if (headers.length === 2) expect((await connection.answer())?.status).toBe(100);
          await expectLastAnswer(connection);
        });
      });

      it('and does not run bytes that are sent after the answer', async () => {
        await target.survives(way, 1, async (connection) => {
          connection.write(headDeclaring(['Content-Length: 245']));
          const answer = await connection.answer('HEAD');
          connection.write(`${'x'.repeat(245)}${STRAY}`);

          expect(answer?.headers['connection']).toBe('close');
          expect(await connection.rest()).toBe('');
        });
      });

      it.each<[string, string[], string]>([
        ['a body that looks like a request', [`Content-Length: ${STRAY.length}`], STRAY],
        ['a body followed by a request', ['Content-Length: 245'], 'x'.repeat(245) + STRAY],
        [
          'a next request with another one inside, at the declared length',
          ['Content-Length: 245'],
          'GET /stray HTTP/1.1\r\nX: '.padEnd(245, 'x') + STRAY,
        ],
        ['chunks followed by a request', ['Transfer-Encoding: chunked'], `0\r\n\r\n${STRAY}`],
        [
          'webhooks after a body',
          ['Content-Length: 5'],
          `xxxxx${postRequest(way, '{}')}${postRequest(way, '{}')}`,
        ],
      ])('and runs nothing else in the same packet: %s', async (_name, headers, wire) => {
        await target.survives(way, 1, async (connection) => {
          connection.write(headDeclaring(headers) + wire);

          await expectLastAnswer(connection);
        });
      });

      it('also if it is rejected', async () => {
        await target.survives(way, 0, async (connection) => {
          const refused = requestHead('HEAD', way, ['Content-Length: 245']);
          connection.write(`${refused}${'x'.repeat(245)}${STRAY}`);

          const answer = await connection.answer('HEAD');
          expect(outcome(answer)).toEqual([401, 'missing_token']);
          expect(answer?.headers['connection']).toBe('close');
          expect(await connection.rest()).toBe('');
        });
      });
    });

    it('keeps the connection open after a HEAD with Content-Length: 0', async () => {
      await target.survives(way, 2, async (connection) => {
        for (let i = 0; i < 2; i++) {
          connection.write(requestHead('HEAD', way, [authorization(), 'Content-Length: 0']));
          expect(outcome(await connection.answer('HEAD'))).toEqual([204, undefined]);
        }
      });
    });

    it.each([
      ['GET', 405],
      ['HEAD', 401],
      ['POST', 401],
    ])('keeps the connection open after a refused %s without a body', async (method, status) => {
      await target.survives(way, 0, async (connection) => {
        for (let i = 0; i < 2; i++) {
          connection.write(requestHead(method, way, []));
          const answer = await connection.answer(method);
          expect(answer?.status).toBe(status);
          expect(answer?.headers['connection']).not.toBe('close');
        }
      });
    });

    it('handles five valid requests in one packet and answers them in order', async () => {
      await target.survives(way, 5, async (connection) => {
        const texts = [1, 2, 3, 4, 5].map((n) => `{"n":${n}}`);
        connection.write(texts.map((text) => postRequest(way, text)).join(''));

        for (let i = 0; i < texts.length; i++) {
          expect(outcome(await connection.answer())).toEqual([204, undefined]);
        }
        expect(target.events.slice(-5).map(({ data }) => data)).toEqual(
          texts.map((text) => JSON.parse(text) as unknown),
        );
      });
    });

    describe('Expect', () => {
      it('100-continue: accepts the body after the interim answer', async () => {
        await target.survives(way, 1, async (connection) => {
          connection.write(framed('{}', ['Content-Length: 2', 'Expect: 100-continue'], ''));

          expect((await connection.answer())?.status).toBe(100);
          connection.write('{}');
          expect(outcome(await connection.answer())).toEqual([204, undefined]);
        });
      });

      it('100-continue: rejects a request without waiting for its body', async () => {
        await target.survives(way, 0, async (connection) => {
          const head = requestHead('POST', way, ['Content-Length: 9', 'Expect: 100-continue']);
          connection.write(head);

          expect((await connection.answer())?.status).toBe(100);
          const answer = await connection.answer();
          expect(outcome(answer)).toEqual([401, 'missing_token']);
          expect(answer?.headers['connection']).toBe('close');
        });
      });

      it('any other value: Node answers 417', async () => {
        await target.survives(way, 0, async (connection) => {
          connection.write(framed('{}', ['Content-Length: 2', 'Expect: the-best'], '{}'));

          expect(outcome(await connection.answer())).toEqual([417, undefined]);
        });
      });
    });

    describe('request target', () => {
      const postTo = (requestTarget: string): string =>
        requestHead('POST', requestTarget, [
          authorization(signedBody('{}').token),
          'Content-Type: application/json',
          'Content-Length: 2',
        ]) + '{}';

      it.each([
        ['with a query', `${way}?a=1&b=%00`],
        ['with a fragment', `${way}#stray`],
        ['as an absolute URI', `http://receiver.example${way}`],
        ['as an absolute URI of another host', `http://else.example:1${way}?a`],
      ])('%s matches the path', async (_name, requestTarget) => {
        await target.survives(way, 1, async (connection) => {
          connection.write(postTo(requestTarget));

          expect(outcome(await connection.answer())).toEqual([204, undefined]);
        });
      });

      it.each([
        ['with two leading slashes', `/${way}`],
        ['dots', `/x/..${way}`],
        ['with a trailing encoded slash', `${way}%2f`],
        ['with an encoded NUL', `${way}%00`],
        ['with a path parameter', `${way};a=1`],
        ['with a subpath', `${way}/below`],
        ['of an asterisk', '*'],
        ['with an incomplete escape', `${way}%`],
      ])('%s does not match the path', async (_name, requestTarget) => {
        await target.survives(way, 0, async (connection) => {
          connection.write(postTo(requestTarget));

          expect([400, 404]).toContain((await connection.answer())?.status);
        });
      });
    });
  });
});
