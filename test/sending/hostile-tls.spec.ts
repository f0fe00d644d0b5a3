import { readFileSync } from 'node:fs';
import type { TlsOptions } from 'node:tls';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { HostileReceiver, type Behaviour } from './hostile-receiver.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

const DEADLINE = 15_000;

let bench: PublisherBench;
let good: WireReceiver;
let hostile: HostileReceiver;

beforeEach(async () => {
  good = await WireReceiver.start();
});
afterEach(async () => {
  await bench.stop();
  await Promise.all([good.stop(), hostile.stop()]);
});

function pem(name: string): Buffer {
  return readFileSync(new URL(`../egress/certificates/${name}.pem`, import.meta.url));
}

/** All certificates here are of one key. */
function serving(certificate: string, more: TlsOptions = {}): TlsOptions {
  return { cert: pem(`${certificate}.cert`), key: pem('hooks.test.key'), ...more };
}

async function startTrusting(certificate: string | undefined): Promise<void> {
  bench = await PublisherBench.start(
    certificate === undefined ? {} : { tls: { ca: pem(`${certificate}.cert`).toString() } },
  );
}

const acknowledge: Behaviour = (socket) => void socket.write('HTTP/1.1 204 x\r\n\r\n');
const send = async (url: string) => bench.publisher.send(url, 'order.created', ['x']);

describe('a receiver with faulty TLS', () => {
  it.each<[string, TlsOptions, string | undefined]>([
    ['has an expired certificate', serving('expired'), 'expired'],
    ['has the certificate of another host', serving('other-host'), 'other-host'],
    ['has a self-signed certificate', serving('hooks.test'), undefined],
    ['has a certificate of an unknown authority', serving('unknown-authority'), undefined],
    [
      'has a certificate of an unknown authority, beside a trusted one',
      serving('unknown-authority'),
      'hooks.test',
    ],
    [
      'speaks no newer version than TLS 1.1',
      serving('hooks.test', {
        minVersion: 'TLSv1',
        maxVersion: 'TLSv1.1',
        ciphers: 'DEFAULT@SECLEVEL=0',
      }),
      'hooks.test',
    ],
  ])('gets no request if it %s', async (_, tls, trusted) => {
    await startTrusting(trusted);
    hostile = await HostileReceiver.start(acknowledge, { tls });

    expect(await send(hostile.url)).toMatchObject({ status: 'scheduled', failureReason: 'tls' });
    await hostile.released();
    expect(hostile.requests).toBe(0);
    expect(await send(good.url)).toMatchObject({ status: 'delivered' });
  });

  it.each<[string, string]>([
    ['answers in plain HTTP', 'HTTP/1.1 204 x\r\n\r\n'],
    ['answers with garbage', '\0\x01\x02nonsense'],
    ['answers with an alert', '\x15\x03\x03\0\x02\x02\x28'],
  ])('gets no request if it %s', async (_, text) => {
    await startTrusting('hooks.test');
    hostile = await HostileReceiver.start(acknowledge, {
      onConnection: (socket) => void socket.write(text, 'latin1'),
    });

    expect(await send(hostile.url.replace('http:', 'https:'))).toMatchObject({
      status: 'scheduled',
      failureReason: 'tls',
    });
    await hostile.released();
    expect(hostile.requests).toBe(0);
  });

  it('gets no request if it closes the connection during the handshake', async () => {
    await startTrusting('hooks.test');
    hostile = await HostileReceiver.start(acknowledge, {
      onConnection: (socket) => void socket.once('data', () => socket.resetAndDestroy()),
    });

    expect(await send(hostile.url.replace('http:', 'https:'))).toMatchObject({
      status: 'scheduled',
      failureReason: 'connection_reset',
    });
    await hostile.released();
  });

  it('is cut off at the deadline if it never answers the handshake', async () => {
    await startTrusting('hooks.test');
    hostile = await HostileReceiver.start(acknowledge);
    const sent = send(hostile.url.replace('http:', 'https:'));
    await hostile.connected(1);
    await bench.clock.advance(DEADLINE);

    expect(await sent).toMatchObject({ failureReason: 'timeout', durationMs: DEADLINE });
    expect(await send(good.url)).toMatchObject({ status: 'delivered' });
    await bench.publisher.beforeApplicationShutdown();
    await hostile.released();
  });

  it('gets requests once its TLS is corrected', async () => {
    await startTrusting('hooks.test');
    hostile = await HostileReceiver.start(acknowledge, { tls: serving('hooks.test') });

    expect(await send(hostile.url)).toMatchObject({ status: 'delivered', statusCode: 204 });
  });
});
