import { HttpService } from '@nestjs/axios';
import { afterEach, beforeAll, beforeEach, describe, expect, it, jest } from '@jest/globals';
import axios, {
  Axios,
  AxiosError,
  create,
  type AxiosRequestConfig,
  type AxiosResponse,
} from 'axios';
import { firstValueFrom } from 'rxjs';
import { EgressPolicy } from '../../lib/egress/egress-policy.js';
import { createGuardedAgents, type GuardedAgents } from '../../lib/egress/guarded-agent.js';
import { AttemptDeadline } from '../../lib/sending/attempt-deadline.js';
import { DeliveryAdapter } from '../../lib/sending/delivery.adapter.js';
import { leanAxios } from '../../lib/sending/lean-axios.js';
import { transportFailure } from '../../lib/sending/receiver-answer.js';
import { requestConfig } from '../../lib/sending/request-config.js';
import { WireReceiver, type Script } from '../publisher/wire-receiver.js';

const policy = new EgressPolicy({ allowHttp: true, allowedAddresses: ['127.0.0.1'] });
const body = Buffer.from('["an order"]');

let agents: GuardedAgents;
let adapter: DeliveryAdapter;
let receiver: WireReceiver;
let deadline: AttemptDeadline;

beforeAll(async () => {
  agents = createGuardedAgents(policy);
  adapter = await DeliveryAdapter.load(policy, { agents, tls: undefined });
  return () => {
    adapter.close();
    agents.destroy();
  };
});
beforeEach(async () => {
  receiver = await WireReceiver.start();
  deadline = new AttemptDeadline();
});
afterEach(async () => {
  axios.interceptors.request.clear();
  axios.interceptors.response.clear();
  await receiver.stop();
});

const lean = new HttpService(leanAxios(axios));
const stock = new HttpService(create());

/** A delivery, as the publisher passes it to HttpService. */
function delivery(method: 'HEAD' | 'POST', { url = receiver.url, isLean = true } = {}) {
  const headers = {
    Accept: '*/*',
    'Accept-Encoding': 'identity',
    'User-Agent': 'nestjs-webhook-token',
    Authorization: 'Bearer a.b.c',
    'Content-Type': 'application/json',
    'Content-Length': String(method === 'HEAD' ? 0 : body.length),
  };
  const receipt = (): never => {
    throw new Error('not needed');
  };
  const request = { method, url, headers, token: 'a.b.c', receipt };
  return requestConfig(
    method === 'HEAD' ? request : { ...request, body },
    isLean ? deadline : deadline.signal,
    { agents, adapter: isLean ? adapter.adapt : 'http', defaults: axios.defaults },
  );
}

async function outcome(http: HttpService, config: AxiosRequestConfig): Promise<unknown> {
  try {
    return await firstValueFrom(http.request(config));
  } catch (error) {
    return error;
  }
}

/** The outcomes of the same delivery with the axios of the application and with the module's own. */
async function both(method: 'HEAD' | 'POST', options: { url?: string } = {}) {
  return Promise.all([
    outcome(stock, delivery(method, { ...options, isLean: false })),
    outcome(lean, delivery(method, options)),
  ]);
}

describe.each(['HEAD', 'POST'] as const)(
  'the lean instance answers a %s as axios does',
  (method) => {
    it('with status, headers, bytes and settings', async () => {
      receiver.script = () => ({
        status: 202,
        headers: { 'Retry-After': '7' },
        ...(method === 'POST' && { body: 'taken' }),
      });
      const [expected, actual] = (await both(method)) as [AxiosResponse, AxiosResponse];
      const plain = ({ headers, ...response }: AxiosResponse): object => ({
        status: response.status,
        statusText: response.statusText,
        data: response.data,
        url: response.config.url,
        headers: JSON.parse(JSON.stringify(headers)) as unknown,
      });

      expect(plain(actual)).toEqual(plain(expected));
      expect(receiver.requests[1]!.body).toEqual(receiver.requests[0]!.body);
      const headers = receiver.requests.map((request) =>
        request.headers.map(([name, value]) => `${name.toLowerCase()}: ${value}`).toSorted(),
      );
      expect(headers[1]).toEqual(headers[0]);
    });

    it.each<[string, Script]>([
      ['a reset', () => 'reset'],
      ['a head that is too large', () => `HTTP/1.1 204 x\r\nX: ${'x'.repeat(60_000)}\r\n\r\n`],
      ...(method === 'HEAD'
        ? []
        : ([
            ['a body that is too large', () => ({ status: 200, body: 'x'.repeat(70_000) })],
          ] satisfies [string, Script][])),
    ])('with the same error after %s', async (_, script) => {
      receiver.script = script;
      const [expected, actual] = (await both(method)) as [AxiosError, AxiosError];

      expect(actual).toBeInstanceOf(AxiosError);
      expect(actual.code).toBe(expected.code);
      expect(transportFailure(actual)).toBe(transportFailure(expected));
      expect(actual.config?.url).toBe(receiver.url);
    });

    it('with the same error if the connection is refused', async () => {
      const [expected, actual] = (await both(method, {
        url: 'http://127.0.0.1:2/',
      })) as AxiosError[];

      expect(actual).toMatchObject({ name: expected!.name, code: 'ECONNREFUSED' });
    });

    it('with the same error at the deadline, and after it', async () => {
      receiver.script = () => 'hang';
      const outcomes = both(method);
      await receiver.received(1);
      deadline.abort('timeout');
      const [expected, actual] = (await outcomes) as AxiosError[];

      expect(actual).toMatchObject({ name: 'CanceledError', code: 'ERR_CANCELED' });
      expect(expected).toMatchObject({ name: 'CanceledError', code: 'ERR_CANCELED' });
    });
  },
);

describe('the lean instance uses axios', () => {
  it('while it has an interceptor, which gets the whole request', async () => {
    const seen: unknown[] = [];
    const id = lean.axiosRef.interceptors.request.use((config) => {
      seen.push(config.headers.get('Authorization'), config.signal);
      config.headers.set('X-Trace', 'abc');
      return config;
    });
    await outcome(lean, delivery('HEAD'));
    lean.axiosRef.interceptors.request.eject(id);
    await outcome(lean, delivery('HEAD'));

    expect(seen).toEqual(['Bearer a.b.c', expect.any(AbortSignal)]);
    expect(receiver.requests.map(({ headers }) => new Map(headers).get('X-Trace'))).toEqual([
      'abc',
      undefined,
    ]);
  });

  it('for an interceptor of responses', async () => {
    lean.axiosRef.interceptors.response.use(({ status }) => status as never);

    expect(await outcome(lean, delivery('POST'))).toBe(204);
  });

  it.each<[string, () => () => void]>([
    [
      'a header of every request',
      () => {
        axios.defaults.headers.common['X-App'] = 'shop';
        return () => delete axios.defaults.headers.common['X-App'];
      },
    ],
    [
      'a header of one method',
      () => {
        axios.defaults.headers.post['X-App'] = 'shop';
        return () => delete axios.defaults.headers.post['X-App'];
      },
    ],
  ])('for %s', async (_, change) => {
    const restore = change();
    try {
      await outcome(lean, delivery('POST'));
    } finally {
      restore();
    }

    expect(receiver.requests[0]!.headers).toContainEqual(['X-App', 'shop']);
  });

  it('for any other default, for an adapter of the application, and for a fake', async () => {
    const request = jest.spyOn(Axios.prototype as unknown as { _request(): unknown }, '_request');
    await outcome(lean, delivery('POST'));
    expect(request).not.toHaveBeenCalled();

    Object.assign(axios.defaults, { maxRate: [1_000_000, 1_000_000] });
    await outcome(lean, delivery('POST'));
    delete axios.defaults.maxRate;
    expect(request).toHaveBeenCalledTimes(1);
    request.mockRestore();

    const before = axios.defaults.adapter!;
    axios.defaults.adapter = async (config) =>
      ({ status: 418, statusText: '', headers: {}, data: '', config }) as AxiosResponse;
    const { adapter: _adapter, ...withoutAdapter } = delivery('POST');
    const answer = await outcome(lean, withoutAdapter);
    axios.defaults.adapter = before;
    expect(answer).toMatchObject({ status: 418 });

    const standIn = jest.spyOn(axios, 'request').mockResolvedValue({ status: 201 });
    expect(await outcome(lean, delivery('POST'))).toMatchObject({ status: 201 });
    standIn.mockRestore();
  });

  it('for every other request of an application', async () => {
    receiver.script = ({ method }) => ({ status: 200, body: `"${method}"` });

    const { data } = await firstValueFrom(lean.put<unknown>(receiver.url, { id: 1 }));
    expect(data).toBe('PUT');
    expect((await lean.axiosRef({ url: receiver.url })).data).toBe('GET');
    expect(receiver.requests[0]!.body.toString()).toBe('{"id":1}');
  });
});
