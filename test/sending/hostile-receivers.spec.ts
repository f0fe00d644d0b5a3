import { once } from 'node:events';
import { Agent, createServer } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { AxiosRequestConfig } from 'axios';
import {
  answer,
  ANSWERS_WITH_MORE,
  lastAnswer,
  NO_ANSWERS,
  OK,
  thenReset,
} from './hostile-answers.js';
import { HostileReceiver, writeForever, type Behaviour } from './hostile-receiver.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

const DEADLINE = 15_000;
/** Bytes that the buffers of two sockets can hold before a writer notices that no one reads. */
const BUFFERS = 16 * 1024 * 1024;

let bench: PublisherBench;
let good: WireReceiver;
let hostile: HostileReceiver;

beforeEach(async () => {
  good = await WireReceiver.start();
  bench = await PublisherBench.start();
});
afterEach(async () => {
  await bench.stop();
  await Promise.all([good.stop(), hostile.stop()]);
});

/** An event that is sent by POST, so that an attempt is one request. */
const send = async (url: string) => bench.publisher.send(url, 'order.created', ['x']);

/** Asserts that the next delivery to a correct receiver succeeds. */
async function expectOthersServed(): Promise<void> {
  expect(await send(good.url)).toMatchObject({ status: 'delivered', statusCode: 204 });
}

describe('an invalid answer', () => {
  it.each(NO_ANSWERS)('fails the attempt: %s', async (_, behave, failureReason) => {
    hostile = await HostileReceiver.start(behave);

    expect(await send(hostile.url)).toMatchObject({
      status: 'scheduled',
      attempts: 1,
      failureReason,
    });
    await hostile.released();
    await expectOthersServed();
  });
});

describe('a complete answer', () => {
  it.each(ANSWERS_WITH_MORE)('decides, and its connection ends: %s', async (_, text) => {
    hostile = await HostileReceiver.start(answer(text));

    expect(await send(hostile.url)).toMatchObject({ status: 'delivered', attempts: 1 });
    expect(await send(hostile.url)).toMatchObject({ status: 'delivered', attempts: 1 });
    expect(hostile.connections).toBe(2);
    await expectOthersServed();
  });

  it('to a HEAD decides too, so that no POST follows it', async () => {
    hostile = await HostileReceiver.start(answer('HTTP/1.1 204 x\r\nContent-Length: 2\r\n\r\nok'));
    const sent = bench.publisher.send(hostile.url, 'order.created', { id: 1 });

    expect(await sent).toMatchObject({ status: 'delivered', attempts: 1 });
    expect(hostile.requests).toBe(1);
  });
});

describe('an answer that does not end', () => {
  it.each<[string, Behaviour]>([
    ['sends nothing', () => {}],
    ['drips headers', drip(OK, 'X: y\r\n')],
    ['drips a body', drip(`${OK}Content-Length: 1000000\r\n\r\n`, 'x')],
    ['drips chunks', drip(`${OK}Transfer-Encoding: chunked\r\n\r\n`, '1\r\nx\r\n')],
    ['drips its status line', drip('HTTP/1.1 200 ', 'x')],
    ['drips interim answers', drip('', 'HTTP/1.1 102 Processing\r\n\r\n')],
    ['drips early hints', drip('', 'HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n')],
    ['declares a body and sends none', answer(`${OK}Content-Length: 5\r\n\r\n`)],
  ])('is cut off at the deadline if it %s', async (_, behave) => {
    hostile = await HostileReceiver.start(behave);
    const sent = send(hostile.url);
    await hostile.received(1);
    await bench.clock.advance(DEADLINE);

    expect(await sent).toMatchObject({
      status: 'scheduled',
      failureReason: 'timeout',
      durationMs: DEADLINE,
    });
    await hostile.released();
    await expectOthersServed();
  });

  // The status counts, however long the body is.
  const delivered = { status: 'delivered', statusCode: 200 };
  it.each<[string, string, string, object]>([
    [
      'a body',
      `${OK}Transfer-Encoding: chunked\r\n\r\n`,
      `4000\r\n${'x'.repeat(16_384)}\r\n`,
      delivered,
    ],
    ['a body without a length', `${OK}\r\n`, 'x'.repeat(16_384), delivered],
    [
      'a head',
      OK,
      `X: ${'x'.repeat(1_000)}\r\n`,
      { status: 'scheduled', failureReason: 'response_too_large' },
    ],
  ])('is cut off at the size limit: %s', async (_, start, chunk, result) => {
    hostile = await HostileReceiver.start(async (socket) => {
      socket.write(start);
      await writeForever(socket, chunk);
    });

    expect(await send(hostile.url)).toMatchObject(result);
    await hostile.released();
    expect(hostile.bytesWritten).toBeLessThan(BUFFERS);
    await expectOthersServed();
  });

  it.each(['100 Continue', '102 Processing', '103 Early Hints'])(
    'is cut off if it floods the sender with interim answers: %s',
    async (status) => {
      hostile = await HostileReceiver.start(async (socket) =>
        writeForever(socket, `HTTP/1.1 ${status}\r\n\r\n`),
      );

      expect(await send(hostile.url)).toMatchObject({ failureReason: 'response_too_large' });
      await hostile.released();
      expect(hostile.bytesWritten).toBeLessThan(BUFFERS);
      await expectOthersServed();
    },
  );

  it('ends the attempt, and does not delay a shutdown, if the connection closes', async () => {
    hostile = await HostileReceiver.start(() => {});
    const sent = send(hostile.url).catch((error: unknown) => error);
    await hostile.received(1);
    await bench.stop();

    expect(await sent).toMatchObject({ code: 'shutting_down' });
    await hostile.released();
    bench = await PublisherBench.start();
  });
});

describe.each<[string, AxiosRequestConfig]>([
  ['node:http', {}],
  ['an agent of the application', { httpAgent: new Agent({ keepAlive: true }) }],
  ['the adapter of axios', { params: { trace: 1 } }],
])('an answer before the end of the body, over %s', (_adapter, settings) => {
  beforeEach(() => {
    bench.http.axiosRef.interceptors.request.use((config) => Object.assign(config, settings));
  });
  const body = Buffer.alloc(BUFFERS, 'x');
  const sendLarge = async (url: string) =>
    bench.publisher.send(url, 'order.created', body, { contentType: 'application/octet-stream' });
  let readOn: () => void;
  /** Answers once the head has arrived, and reads no more until {@link readOn}, not even that the connection has ended. */
  const unread = async (answer: string): Promise<HostileReceiver> =>
    HostileReceiver.start(() => {}, {
      onConnection: (socket) => {
        readOn = () => socket.resume();
        socket.once('data', () => {
          socket.pause();
          socket.write(answer);
        });
      },
    });

  it('ends the connection if it refuses the request', async () => {
    hostile = await unread('HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n');

    expect(await sendLarge(hostile.url)).toMatchObject({ failureReason: 'http_413' });
    readOn();
    await hostile.released();
    await expectOthersServed();
  });

  it('counts although the connection is reset', async () => {
    hostile = await HostileReceiver.start(() => {});
    const server = createServer(({ socket }, response) => {
      response.writeHead(413, { 'Content-Length': 0 });
      response.end(() => socket.destroy());
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks`;
    for (let n = 0; n < 3; n++) {
      const { failureReason } = await sendLarge(`${url}/${n}`);
      expect(failureReason).toMatch(/^(http_413|connection_reset)$/);
    }
    server.close();
  });

  it('does not cut off the body if it acknowledges the event', async () => {
    hostile = await HostileReceiver.start(() => {}, {
      onConnection: (socket) =>
        socket.once('data', () => socket.write(`${OK}Content-Length: 0\r\n\r\n`)),
    });

    expect(await sendLarge(hostile.url)).toMatchObject({ status: 'delivered', statusCode: 200 });
    // With the whole body.
    await hostile.received(1);
  });

  it.each<[string, (socket: Socket) => void]>([
    ['resets the connection', (socket) => socket.pause().resetAndDestroy()],
    ['closes the connection', (socket) => socket.pause().destroy()],
    ['ends its side, which ends the answer', (socket) => void socket.end()],
  ])('is no acknowledgement if the receiver then %s', async (_, end) => {
    hostile = await HostileReceiver.start(() => {}, {
      onConnection: (socket) =>
        socket.once('data', () =>
          socket.write(`${OK}Connection: close\r\n\r\nok`, () => end(socket)),
        ),
    });

    expect(await sendLarge(hostile.url)).toMatchObject({
      status: 'scheduled',
      failureReason: 'connection_reset',
    });
    await hostile.released();
    expect(hostile.requests).toBe(0);
    await expectOthersServed();
  });

  it('is no acknowledgement if the receiver does not read on until the deadline', async () => {
    hostile = await unread('HTTP/1.1 200 x\r\nContent-Length: 0\r\n\r\n');
    const sent = sendLarge(hostile.url);
    await hostile.connected(1);
    await bench.clock.advance(DEADLINE);

    expect(await sent).toMatchObject({ status: 'scheduled', failureReason: 'timeout' });
    readOn();
    await hostile.released();
  });
});

describe('a long acknowledgement before the end of the body', () => {
  it.each([BUFFERS, 1024 * 1024])('does not cut off a body of %d bytes', async (size) => {
    hostile = await HostileReceiver.start(() => {});
    let echoed = 0;
    const server = createServer((request, response) => {
      response.writeHead(200);
      request.on('data', (chunk: Buffer) => (echoed += chunk.length)).pipe(response);
      request.on('error', () => {});
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hooks`;
    const contentType = 'application/octet-stream';
    const body = Buffer.alloc(size, 'x');

    expect(await bench.publisher.send(url, 'order.created', body, { contentType })).toMatchObject({
      status: 'delivered',
      statusCode: 200,
    });
    server.close();
    server.closeIdleConnections();
    await once(server, 'close');
    expect(echoed).toBe(size);
  });
});

it('closes an idle connection when the receiver says that it will', async () => {
  hostile = await HostileReceiver.start(answer('HTTP/1.1 204 x\r\nKeep-Alive: timeout=1\r\n\r\n'));
  await send(hostile.url);

  await hostile.released();
  expect(hostile.requests).toBe(1);
});

describe('an answer with too much content', () => {
  it.each<[string, Behaviour, number]>([
    [
      'a thousand interim answers first',
      answer(`${'HTTP/1.1 100 Continue\r\n\r\n'.repeat(1_000)}HTTP/1.1 204 x\r\n\r\n`),
      204,
    ],
    [
      'a second answer after it',
      answer(`${OK}Content-Length: 0\r\n\r\nHTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n`),
      200,
    ],
    ['a FIN without Connection: close', lastAnswer(`${OK}\r\nhello`), 200],
    ['a reset after it', thenReset(`${OK}Content-Length: 0\r\n\r\n`), 200],
  ])('counts by its first final status: %s', async (_, behave, statusCode) => {
    hostile = await HostileReceiver.start(behave);

    expect(await send(hostile.url)).toMatchObject({ status: 'delivered', statusCode });
    await expectOthersServed();
  });

  it.each([
    ['gzip', gzipSync(Buffer.alloc(32 * 1024 * 1024))],
    ['br', Buffer.from('not even that')],
    ['unknown', Buffer.from('x')],
  ])('is not decompressed if its coding is %s', async (encoding, body) => {
    let unpacked = -1;
    bench.http.axiosRef.interceptors.response.use((response) => {
      unpacked = (response.data as Buffer).length;
      return response;
    });
    hostile = await HostileReceiver.start((socket) => {
      socket.write(`${OK}Content-Encoding: ${encoding}\r\nContent-Length: ${body.length}\r\n\r\n`);
      socket.write(body);
    });

    expect(await send(hostile.url)).toMatchObject({ status: 'delivered' });
    expect(unpacked).toBe(body.length);
    bench.http.axiosRef.interceptors.response.clear();
    await expectOthersServed();
  });

  it.each([
    ['9'.repeat(20), 24 * 3_600_000],
    ['-1', 5_000],
    ['1e9', 5_000],
    ['Thu, 01 Jan 1970 00:00:00 GMT', 5_000],
    ['Fri, 31 Dec 9999 23:59:59 GMT', 24 * 3_600_000],
    ['0, 3600', 5_000],
    ['\xff', 5_000],
  ])('defers nothing longer than a day: Retry-After "%s"', async (text, wait) => {
    hostile = await HostileReceiver.start(
      answer(`HTTP/1.1 503 x\r\nRetry-After: ${text}\r\nContent-Length: 0\r\n\r\n`),
    );
    const { nextAttemptAt } = await send(hostile.url);

    expect(nextAttemptAt!.getTime() - bench.clock.now()).toBe(wait);
  });
});

describe('an answer before its request', () => {
  const GONE = 'HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n';

  it('does not answer the next request on an open connection', async () => {
    let sockets: { write: (text: string) => boolean }[] = [];
    hostile = await HostileReceiver.start((socket) => {
      sockets = [...sockets, socket];
      socket.write('HTTP/1.1 204 x\r\n\r\n');
    });
    await send(hostile.url);
    sockets[0]!.write(GONE);
    // Until the sender has seen it, which closes the connection.
    await hostile.released();

    expect(await send(hostile.url)).toMatchObject({ status: 'delivered', statusCode: 204 });
    expect([hostile.requests, hostile.connections]).toEqual([2, 2]);
  });

  it('is not used if it arrives with the previous answer', async () => {
    hostile = await HostileReceiver.start(answer(`HTTP/1.1 204 x\r\n\r\n${GONE}`));

    for (let n = 1; n <= 3; n++) {
      expect(await send(hostile.url)).toMatchObject({ status: 'delivered', statusCode: 204 });
    }
    expect(hostile.requests).toBe(3);
  });
});

/** Writes a start, then a few bytes at a time, 50 times, so that the connection is never idle before. */
function drip(start: string, drop: string): Behaviour {
  return async (socket) => {
    socket.write(start);
    for (let n = 0; n < 50 && !socket.destroyed; n++) {
      socket.write(drop);
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
}
