import { gzipSync } from 'node:zlib';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import type { FailureReason } from '../../lib/queue/failure-reason.js';
import { HostileReceiver, writeForEver, type Behaviour } from './hostile-receiver.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

const DEADLINE = 15_000;
/** What the buffers of two sockets may swallow before a writer feels that nobody reads. */
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

/** A POST of its own accord, which has no second try within the attempt. */
const send = async (url: string) => bench.publisher.send(url, 'order.created', ['x']);

/** The next delivery to somebody decent is served as ever. */
async function expectOthersServed(): Promise<void> {
  expect(await send(good.url)).toMatchObject({ status: 'delivered', statusCode: 204 });
}

/** Writes it and says no more. */
function answer(text: string): Behaviour {
  return (socket) => void socket.write(text, 'latin1');
}

/** Writes it and hangs up. */
function lastAnswer(text: string): Behaviour {
  return (socket) => void socket.end(text, 'latin1');
}

function thenReset(text: string): Behaviour {
  return (socket) => void socket.write(text, 'latin1', () => socket.resetAndDestroy());
}

const OK = 'HTTP/1.1 200 OK\r\n';

describe('an answer that is none', () => {
  it.each<[string, Behaviour, FailureReason]>([
    ['a head of 60 kB', answer(`${OK}X: ${'x'.repeat(60_000)}\r\n\r\n`), 'response_too_large'],
    ['2,000 headers', answer(`${OK}${'X: y\r\n'.repeat(12_000)}\r\n`), 'response_too_large'],
    ['a reset before an answer', (socket) => void socket.resetAndDestroy(), 'connection_reset'],
    ['the end before an answer', (socket) => void socket.end(), 'connection_reset'],
    ['a reset within the status line', thenReset('HTTP/1.1 2'), 'connection_reset'],
    ['the end within the status line', lastAnswer('HTTP/1.1 2'), 'connection_reset'],
    ['a reset within the headers', thenReset(`${OK}Content-Le`), 'connection_reset'],
    ['the end within the headers', lastAnswer(`${OK}Content-Le`), 'connection_reset'],
    ['a reset within the body', thenReset(`${OK}Content-Length: 9\r\n\r\nx`), 'connection_reset'],
    ['the end within the body', lastAnswer(`${OK}Content-Length: 9\r\n\r\nx`), 'connection_reset'],
    [
      'the end within a chunk',
      lastAnswer(`${OK}Transfer-Encoding: chunked\r\n\r\n5\r\nhel`),
      'connection_reset',
    ],
    [
      'a chunk without a size',
      answer(`${OK}Transfer-Encoding: chunked\r\n\r\nnone\r\n`),
      'malformed_response',
    ],
    [
      'a chunk of a negative size',
      answer(`${OK}Transfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n`),
      'malformed_response',
    ],
    [
      'a chunk of 2^64 octets',
      answer(`${OK}Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n`),
      'malformed_response',
    ],
    [
      'both framings',
      answer(`${OK}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n`),
      'malformed_response',
    ],
    [
      'two lengths that differ',
      answer(`${OK}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx`),
      'malformed_response',
    ],
    ['a length that is none', answer(`${OK}Content-Length: -5\r\n\r\n`), 'malformed_response'],
    [
      'a length of 30 digits',
      answer(`${OK}Content-Length: ${'9'.repeat(30)}\r\n\r\n`),
      'malformed_response',
    ],
    // Half of it says that the event was taken, but an answer whose end is in dispute proves nothing: it is sent again.
    [
      'a 204 with a body',
      answer('HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\nhello'),
      'malformed_response',
    ],
    ['more than its length', answer(`${OK}Content-Length: 2\r\n\r\nhello`), 'malformed_response'],
    [
      'rubbish behind it',
      answer(`${OK}Content-Length: 0\r\n\r\n\0\0rubbish`),
      'malformed_response',
    ],
    ['HTTP/0.9', lastAnswer('<html>hello</html>'), 'malformed_response'],
    ['HTTP/9.9', answer('HTTP/9.9 200 OK\r\n\r\n'), 'malformed_response'],
    ['a greeting of SSH', answer('SSH-2.0-OpenSSH\r\n'), 'malformed_response'],
    ['a greeting of SMTP', answer('220 mail.example ESMTP\r\n'), 'malformed_response'],
    ['a frame of HTTP/2', answer('\0\0\x12\x04\0\0\0\0\0'), 'malformed_response'],
    ['zeros', answer('\0'.repeat(1_000)), 'malformed_response'],
    ['a request in place of an answer', answer('GET / HTTP/1.1\r\n\r\n'), 'malformed_response'],
    ['a status that is none', answer('HTTP/1.1 abc OK\r\n\r\n'), 'malformed_response'],
    ['a bare line feed in a header', answer(`${OK}X: a\nb\r\n\r\n`), 'malformed_response'],
    ['a header without a name', answer(`${OK}: x\r\n\r\n`), 'malformed_response'],
  ])('%s', async (_, behave, failureReason) => {
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

describe('an answer that does not end', () => {
  it.each<[string, Behaviour]>([
    ['says nothing', () => {}],
    ['drips headers', drip(OK, 'X: y\r\n')],
    ['drips a body', drip(`${OK}Content-Length: 1000000\r\n\r\n`, 'x')],
    ['drips chunks', drip(`${OK}Transfer-Encoding: chunked\r\n\r\n`, '1\r\nx\r\n')],
    ['drips its status line', drip('HTTP/1.1 200 ', 'x')],
    ['drips interim answers', drip('', 'HTTP/1.1 102 Processing\r\n\r\n')],
    ['drips early hints', drip('', 'HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\n')],
    [
      'changes the protocol, which nobody asked for',
      answer('HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n'),
    ],
    ['promises a body and sends none', answer(`${OK}Content-Length: 5\r\n\r\n`)],
  ])('but %s is cut off at the deadline', async (_, behave) => {
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

  it.each<[string, string, string]>([
    ['a body', `${OK}Transfer-Encoding: chunked\r\n\r\n`, `4000\r\n${'x'.repeat(16_384)}\r\n`],
    ['a body without a length', `${OK}\r\n`, 'x'.repeat(16_384)],
    ['a head', OK, `X: ${'x'.repeat(1_000)}\r\n`],
  ])('but gushes %s is cut off when it is too much', async (_, start, chunk) => {
    hostile = await HostileReceiver.start(async (socket) => {
      socket.write(start);
      await writeForEver(socket, chunk);
    });

    expect(await send(hostile.url)).toMatchObject({
      status: 'scheduled',
      failureReason: 'response_too_large',
    });
    await hostile.released();
    expect(hostile.bytesWritten).toBeLessThan(BUFFERS);
    await expectOthersServed();
  });

  it('but gushes interim answers is cut off at the deadline', async () => {
    hostile = await HostileReceiver.start(async (socket) =>
      writeForEver(socket, 'HTTP/1.1 100 Continue\r\n\r\n'),
    );
    const sent = send(hostile.url);
    await hostile.received(1);
    await bench.clock.advance(DEADLINE);

    expect(await sent).toMatchObject({ failureReason: 'timeout' });
    await hostile.released();
    await expectOthersServed();
  });

  it('delays neither the attempt nor the shutdown if the connection closes', async () => {
    hostile = await HostileReceiver.start(() => {});
    const sent = send(hostile.url).catch((error: unknown) => error);
    await hostile.received(1);
    await bench.stop();

    expect(await sent).toMatchObject({ code: 'shutting_down' });
    await hostile.released();
    bench = await PublisherBench.start();
  });
});

describe('an answer with too much in it', () => {
  it.each<[string, Behaviour, number]>([
    [
      'a thousand interim answers before it',
      answer(`${'HTTP/1.1 100 Continue\r\n\r\n'.repeat(1_000)}HTTP/1.1 204 x\r\n\r\n`),
      204,
    ],
    [
      'a second answer behind it',
      answer(`${OK}Content-Length: 0\r\n\r\nHTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n`),
      200,
    ],
    ['an end without a close', lastAnswer(`${OK}\r\nhello`), 200],
    ['a reset behind it', thenReset(`${OK}Content-Length: 0\r\n\r\n`), 200],
  ])('%s: its first status counts', async (_, behave, statusCode) => {
    hostile = await HostileReceiver.start(behave);

    expect(await send(hostile.url)).toMatchObject({ status: 'delivered', statusCode });
    await expectOthersServed();
  });

  it.each([
    ['gzip', gzipSync(Buffer.alloc(32 * 1024 * 1024))],
    ['br', Buffer.from('not even that')],
    ['of a name nobody knows', Buffer.from('x')],
  ])('a body said to be %s is not unpacked', async (encoding, body) => {
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
  ])('a Retry-After of "%s" puts nothing off for longer than a day', async (text, wait) => {
    hostile = await HostileReceiver.start(
      answer(`HTTP/1.1 503 x\r\nRetry-After: ${text}\r\nContent-Length: 0\r\n\r\n`),
    );
    const { nextAttemptAt } = await send(hostile.url);

    expect(nextAttemptAt!.getTime() - bench.clock.now()).toBe(wait);
  });
});

describe('an answer in advance', () => {
  const GONE = 'HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n';

  it('is not taken for the answer to the next request on a kept connection', async () => {
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

/** A start, then a little at a time, so that it is never silent: 50 times, and then it is. */
function drip(start: string, drop: string): Behaviour {
  return async (socket) => {
    socket.write(start);
    for (let n = 0; n < 50 && !socket.destroyed; n++) {
      socket.write(drop);
      await new Promise((resolve) => setImmediate(resolve));
    }
  };
}
