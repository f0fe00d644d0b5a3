import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import type { Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { decodeJwt } from 'jose';
import { TestClock } from 'nestjs-webhook-token/testing';
import { digest } from 'nestjs-webhook-token/token';
import { adapters } from '../fixtures/adapters.js';
import { forged, goodClaims } from '../fixtures/forged-token.js';
import {
  HostileTarget,
  outcome,
  postRequest,
  requestHead,
  WEBHOOK_PATHS,
} from '../fixtures/hostile-target.js';
import type { RawConnection } from '../fixtures/raw-client.js';
import { ISSUER, receiverOptions, SECRET, signed, signedBody } from '../fixtures/receiver-app.js';

const MEBIBYTE = 1024 * 1024;
/** Bytes that a receiver may read of a rejected body: a few packets that were in flight. */
const A_FEW_PACKETS = 2 * MEBIBYTE;

type Outcome = [status: number, code: string | undefined];

const deep = (levels: number): string => '{"a":'.repeat(levels) + '1' + '}'.repeat(levels);

/** Claims of a body in the form of swt-draft-00. */
function draftClaims(body: string): Record<string, unknown> {
  const [, hash] = digest('sha512', Buffer.from(body)).split(':');
  const { iat, webhook } = goodClaims();
  const data = { hash, hashAlg: 'SHA-512', size: body.length };
  return { nbf: iat, webhook: { ...(webhook as object), data, hash: `sha512:${hash}` } };
}

const json = 'application/json';
const BODIES: [string, string | undefined, Buffer, Outcome, unknown][] = [
  ['JSON', json, Buffer.from('{"a":1}'), [204, undefined], { a: 1 }],
  [
    'JSON with a vendor content type',
    'application/vnd.x+json',
    Buffer.from('[1]'),
    [204, undefined],
    [1],
  ],
  [
    'JSON with an upper-case content type',
    'APPLICATION/JSON;CHARSET=UTF-8',
    Buffer.from('1'),
    [204, undefined],
    1,
  ],
  ['64 nested levels', json, Buffer.from(deep(64)), [204, undefined], JSON.parse(deep(64))],
  ['65 nested levels', json, Buffer.from(deep(65)), [400, 'invalid_payload'], undefined],
  ['3,000 nested levels', json, Buffer.from(deep(3_000)), [400, 'invalid_payload'], undefined],
  ['a million brackets', json, Buffer.alloc(1e6, '['), [400, 'invalid_payload'], undefined],
  ['truncated JSON', json, Buffer.from('{"a":'), [400, 'invalid_payload'], undefined],
  ['two JSON values', json, Buffer.from('{}{}'), [400, 'invalid_payload'], undefined],
  [
    'a __proto__ member',
    json,
    Buffer.from('{"__proto__":{}}'),
    [400, 'invalid_payload'],
    undefined,
  ],
  ['invalid UTF-8', json, Buffer.from([0x22, 0xff, 0x22]), [400, 'invalid_payload'], undefined],
  ['a byte order mark', json, Buffer.from('\ufeff{}'), [400, 'invalid_payload'], undefined],
  [
    'UTF-16, declared',
    `${json}; charset=utf-16le`,
    Buffer.from('{"ü":1}', 'utf16le'),
    [204, undefined],
    { ü: 1 },
  ],
  [
    'UTF-16, not declared',
    json,
    Buffer.from('{"a":1}', 'utf16le'),
    [400, 'invalid_payload'],
    undefined,
  ],
  [
    'an unknown charset',
    `${json}; charset=klingon`,
    Buffer.from('{}'),
    [415, 'unsupported_encoding'],
    undefined,
  ],
  ['no content type', undefined, Buffer.from('{"a":1}'), [204, undefined], Buffer.from('{"a":1}')],
  ['an empty content type', '', Buffer.from('{}'), [204, undefined], Buffer.from('{}')],
  [
    'a malformed content type',
    ';;=/\u00e9',
    Buffer.from('{}'),
    [204, undefined],
    Buffer.from('{}'),
  ],
  [
    'a content type of 8 kB',
    `x/${'y'.repeat(8_000)}`,
    Buffer.from('{}'),
    [204, undefined],
    Buffer.from('{}'),
  ],
];
/** Bodies are read and parsed by the same code for each adapter and path. */
const SAMPLE = BODIES.filter(([name]) =>
  ['JSON', '65 nested levels', 'no content type'].includes(name),
);

describe.each(adapters)('bodies of a hostile sender on %s', (adapter, createAdapter) => {
  let target: HostileTarget;
  /** Accepts small bodies only. */
  let sparing: HostileTarget;

  beforeAll(async () => {
    target = await HostileTarget.start(createAdapter());
    const options = receiverOptions({ maxBodyBytes: 1_000 });
    sparing = await HostileTarget.start(createAdapter(), { options });
  });
  afterAll(async () => {
    await target.close();
    await sparing.close();
  });

  describe.each(WEBHOOK_PATHS)('at %s', (way) => {
    const isFirst = adapter === 'Express' && way === WEBHOOK_PATHS[0];
    const postHead = (token: string, headers: string[]): string =>
      requestHead('POST', way, [`Authorization: Bearer ${token}`, ...headers]);

    it('accepts a body that arrives byte by byte', async () => {
      await target.survives(way, 1, async () => {
        const { token, body } = signedBody('{"slow":true}');
        const [connection, socket] = await target.connectBothEnds();
        connection.write(postHead(token, ['Content-Type: application/json', 'Content-Length: 13']));
        for (let i = 0; i < body.length; i++) {
          await arrived(connection, socket);
          connection.write(body.subarray(i, i + 1));
        }

        expect(outcome(await connection.answer())).toEqual([204, undefined]);
        connection.destroy();
        expect(target.events.at(-1)?.data).toEqual({ slow: true });
      });
    });

    it('rejects a body that ends after its token has expired', async () => {
      const clock = new TestClock(Date.now());
      const late = await HostileTarget.start(createAdapter(), {
        options: { ...receiverOptions(), clock },
      });
      const { token, body } = signedBody('{"late":true}');
      const [connection, socket] = await late.connectBothEnds();
      connection.write(postHead(token, ['Content-Type: application/json', 'Content-Length: 13']));
      connection.write(body.subarray(0, 1));
      await arrived(connection, socket);
      await clock.advance(2 * 3_600_000);
      connection.write(body.subarray(1));

      expect(outcome(await connection.answer())).toEqual([401, 'token_expired']);
      connection.destroy();
      await late.close();
    });

    it.each([
      ['its token', signedBody('{"late":true}').token, { clockTolerance: 0 }],
      [
        'a token of swt-draft-00, which tolerates no other clock',
        forged({ claims: draftClaims('{"late":true}') }),
        { profiles: ['swt-draft-00'] } as const,
      ],
    ])('rejects a body that ends just after the end of %s', async (_, token, change) => {
      const body = Buffer.from('{"late":true}');
      const { exp } = decodeJwt(token);
      const clock = new TestClock(exp! * 1_000 - 300);
      const late = await HostileTarget.start(createAdapter(), {
        options: { ...receiverOptions(change), clock },
      });
      const [connection, socket] = await late.connectBothEnds();
      connection.write(postHead(token, ['Content-Type: application/json', 'Content-Length: 13']));
      connection.write(body.subarray(0, 1));
      await arrived(connection, socket);
      await clock.advance(300);
      connection.write(body.subarray(1));

      expect(outcome(await connection.answer())).toEqual([401, 'token_expired']);
      connection.destroy();
      await late.close();
    });

    it('rejects a slow body that ends after the key has ended', async () => {
      const { token, body } = signedBody('{"late":true}');
      const clock = new TestClock(decodeJwt(token).iat! * 1_000);
      const notAfter = new Date(clock.now() + 1_000);
      const issuers = [{ issuer: ISSUER, keys: [{ key: SECRET, notAfter }] }];
      const late = await HostileTarget.start(createAdapter(), {
        options: { ...receiverOptions({ issuers }), clock },
      });
      const [connection, socket] = await late.connectBothEnds();
      connection.write(postHead(token, ['Content-Type: application/json', 'Content-Length: 13']));
      connection.write(body.subarray(0, 1));
      await arrived(connection, socket);
      await clock.advance(1_000);
      connection.write(body.subarray(1));

      expect(outcome(await connection.answer())).toEqual([401, 'unknown_key']);
      expect(late.events).toEqual([]);
      connection.destroy();
      await late.close();
    });

    it('accepts a body of the limit, and no byte more', async () => {
      const limit = Buffer.alloc(1_000, 'x');
      const over = Buffer.alloc(1_001, 'x');
      for (const [bytes, expected] of [
        [limit, [204, undefined]],
        [over, [413, 'payload_too_large']],
      ] as const) {
        const framings = [
          [`Content-Length: ${bytes.length}\r\n\r\n`, ''],
          [`Transfer-Encoding: chunked\r\n\r\n${bytes.length.toString(16)}\r\n`, '\r\n0\r\n\r\n'],
        ] as const;
        for (const [before, after] of framings) {
          const { token, body } = signedBody(bytes);
          const [connection] = await sparing.connectBothEnds();
          const head = postHead(token, ['Content-Type: text/plain']).replace(/\r\n$/, before);
          connection.write(Buffer.concat([Buffer.from(head), body, Buffer.from(after)]));

          expect(outcome(await connection.answer())).toEqual(expected);
          connection.destroy();
        }
      }
    });

    it('rejects chunks at the limit', async () => {
      await target.survives(way, 0, async () => {
        const token = signed({ hash: digest('sha256', Buffer.alloc(40 * MEBIBYTE)) });
        const [connection, socket] = await target.connectBothEnds();
        const piece = chunk(64 * 1024);
        connection.write(postHead(token, ['Transfer-Encoding: chunked']));
        for (let i = 0; i < 40 * 16 && !connection.closed; i++) {
          await connection.writeAll(piece);
          await arrived(connection, socket);
        }

        const answer = await connection.answer();
        expect(outcome(answer)).toEqual([413, 'payload_too_large']);
        expect(answer?.headers['connection']).toBe('close');
        expect(socket.bytesRead).toBeLessThan(33 * MEBIBYTE);
        connection.destroy();
      });
    });

    it('rejects a Content-Length above the limit without reading the body', async () => {
      await target.survives(way, 0, async (connection) => {
        connection.write(postHead(signedBody('{}').token, ['Content-Length: 40000000']));

        const answer = await connection.answer();
        expect(outcome(answer)).toEqual([413, 'payload_too_large']);
        expect(answer?.headers['connection']).toBe('close');
      });
    });

    it.each<[string, string[]]>([
      ['with Content-Length', [`Content-Length: ${256 * MEBIBYTE}`]],
      ['in chunks', ['Transfer-Encoding: chunked']],
    ])('does not read 256 MB with an invalid token, %s', async (_name, framing) => {
      await target.survives(way, 0, async () => {
        const [connection, socket] = await target.connectBothEnds();
        connection.write(postHead('a.b.c', framing));
        const answer = await connection.answer();
        const piece = framing[0]!.startsWith('T') ? chunk(MEBIBYTE) : Buffer.alloc(MEBIBYTE);
        for (let i = 0; i < 256 && !connection.closed; i++) await connection.writeAll(piece);

        expect(outcome(answer)).toEqual([401, 'invalid_token']);
        expect(answer?.headers['connection']).toBe('close');
        expect(socket.bytesRead).toBeLessThan(A_FEW_PACKETS);
        connection.destroy();
      });
    });

    it('disconnects a sender of 256 MB that ignores the answer', async () => {
      await target.survives(way, 0, async () => {
        const [connection, socket] = await target.connectBothEnds();
        connection.write(postHead('a.b.c', [`Content-Length: ${256 * MEBIBYTE}`]));
        for (let i = 0; i < 256 && !connection.closed; i++) {
          await connection.writeAll(Buffer.alloc(MEBIBYTE));
        }

        // A failed write may be reported before the end of the connection.
        await connection.rest();
        expect(socket.bytesRead).toBeLessThan(A_FEW_PACKETS);
        connection.destroy();
      });
    });

    it('rejects a gzip bomb without decompressing it', async () => {
      await target.survives(way, 0, async (connection) => {
        const bomb = gzipSync(Buffer.alloc(64 * MEBIBYTE));
        const { token } = signedBody(bomb);
        connection.write(
          postHead(token, [
            'Content-Type: application/json',
            'Content-Encoding: gzip',
            `Content-Length: ${bomb.length}`,
          ]),
        );

        expect(outcome(await connection.answer())).toEqual([415, 'unsupported_encoding']);
      });
    });

    it.each(isFirst ? BODIES : SAMPLE)('answers %s', async (_name, type, body, expected, data) => {
      await target.survives(way, expected[0] === 204 ? 1 : 0, async (connection) => {
        const head = postHead(signedBody(body).token, [
          ...(type === undefined ? [] : [`Content-Type: ${type}`]),
          `Content-Length: ${body.length}`,
        ]);
        connection.write(Buffer.from(head, 'latin1')).write(body);

        expect(outcome(await connection.answer())).toEqual(expected);
        if (expected[0] === 204) expect(target.events.at(-1)?.data).toEqual(data);
      });
    });

    it.each(['HEAD', 'POST'])(
      'rejects 3,000 nested levels in the claims of a %s',
      async (method) => {
        await target.survives(way, 0, async (connection) => {
          const text = JSON.stringify({ ...goodClaims(), deep: 0 });
          const token = forged({ claimsText: text.replace('"deep":0', `"deep":${nested(3_000)}`) });
          connection.write(requestHead(method, way, [`Authorization: Bearer ${token}`]));

          expect(outcome(await connection.answer(method))).toEqual([401, 'invalid_claim']);
        });
      },
    );

    it('rejects an unsigned body, whatever its content', async () => {
      await target.survives(way, 0, async (connection) => {
        connection.write(postHead(signed(), ['Content-Length: 9', 'Content-Type: text/plain']));

        expect(outcome(await connection.answer())).toEqual([400, 'hash_required']);
      });
    });

    describe('with the unread body of a rejected request', () => {
      const refusedHead = (headers: string[]): string => postHead('a.b.c', headers);

      it.each([1, 65_536])('discards %i bytes and keeps the connection', async (length) => {
        await target.survives(way, 1, async (connection) => {
          connection.write(refusedHead([`Content-Length: ${length}`]));
          const answer = await connection.answer();
          expect(outcome(answer)).toEqual([401, 'invalid_token']);
          expect(answer?.headers['connection']).not.toBe('close');

          connection.write('x'.repeat(length));
          connection.write(postRequest(way, '{"n":1}'));
          expect(outcome(await connection.answer())).toEqual([204, undefined]);
          expect(target.events.at(-1)?.data).toEqual({ n: 1 });
        });
      });

      it('does not run a request inside the body', async () => {
        await target.survives(way, 1, async (connection) => {
          const hidden = postRequest(way, '{"hidden":true}');
          connection.write(refusedHead([`Content-Length: ${hidden.length}`]) + hidden);
          connection.write(postRequest(way, '{"n":2}'));

          expect(outcome(await connection.answer())).toEqual([401, 'invalid_token']);
          expect(outcome(await connection.answer())).toEqual([204, undefined]);
          expect(target.events.at(-1)?.data).toEqual({ n: 2 });
        });
      });

      it('discards it even if it is larger than the body limit', async () => {
        await sparing.survives(way, 1, async (connection) => {
          connection.write(postHead(signedBody('{}').token, ['Content-Length: 2000']));
          expect(outcome(await connection.answer())).toEqual([413, 'payload_too_large']);

          connection.write('x'.repeat(2_000));
          connection.write(postRequest(way, '{}'));
          expect(outcome(await connection.answer())).toEqual([204, undefined]);
        });
      });

      it.each<[string, string[], string]>([
        ['more bytes than are discarded', ['Content-Length: 65537'], 'x'],
        ['endless chunks', ['Transfer-Encoding: chunked'], '1\r\nx\r\n'],
        ['a body that waits for 100 Continue', ['Content-Length: 9', 'Expect: 100-continue'], ''],
      ])('closes the connection: %s', async (_name, headers, wire) => {
        await target.survives(way, 0, async (connection) => {
          connection.write(refusedHead(headers) + wire);

          if (headers.length === 2) expect((await connection.answer())?.status).toBe(100);
          const answer = await connection.answer();
          expect(outcome(answer)).toEqual([401, 'invalid_token']);
          expect(answer?.headers['connection']).toBe('close');
        });
      });
    });
  });
});

/** Resolves when all written bytes have arrived, or the connection is closed. */
async function arrived(connection: RawConnection, socket: Socket): Promise<void> {
  // At least one turn, so that answers are read before the next write.
  do await new Promise((turn) => setImmediate(turn));
  while (!connection.closed && !socket.destroyed && socket.bytesRead < connection.bytesWritten);
}

/** A chunk of zeros (RFC 9112, section 7.1). */
function chunk(length: number): Buffer {
  return Buffer.concat([
    Buffer.from(`${length.toString(16)}\r\n`),
    Buffer.alloc(length),
    Buffer.from('\r\n'),
  ]);
}

function nested(levels: number): string {
  return '['.repeat(levels) + ']'.repeat(levels);
}
