import { createTokenSigner, createTokenVerifier } from '../../dist/token/index.js';
import { MemoryEndpointStore } from '../../build/lib/endpoints/memory-endpoint.store.js';
import { WebhookHandlerRegistry } from '../../build/lib/receiver/handlers/webhook.dispatcher.js';
import { MemoryReplayStore } from '../../build/lib/replay/memory-replay.store.js';
import { SECRET } from '../event.mjs';
import { compare } from '../harness.mjs';
import { claimOf } from './replay.mjs';

const MANY = 10_000;
const MANY_IDS = { full: 1_000_000, quick: 100_000 };

/** Cost of an event with few and with very many issuers, handlers, endpoints and remembered ids. */
export async function run(options) {
  const results = [];
  const add = async (title, variants) => {
    if (title.includes(options.only ?? '')) results.push(await compare(title, variants, options));
  };
  await add('verify with few and many issuers', issuers());
  await add('find the handlers of an event', handlers());
  await add('find the endpoints of an event', await endpoints());
  await add(
    'reserve and commit an event',
    await remembered(MANY_IDS[options.quick ? 'quick' : 'full']),
  );
  return results;
}

/** At least two: with a single issuer, the verifier does not need `iss` to find the key. */
function issuers() {
  const token = createTokenSigner({ issuer: name(1), key: SECRET }).sign({
    event: 'order.created',
    data: { id: 'ord_1' },
  });
  const of = (count) => {
    const trusted = Array.from({ length: count }, (_, i) => ({ issuer: name(i), secret: SECRET }));
    const verifier = createTokenVerifier({ issuers: trusted });
    return () => verifier.verify(token);
  };
  return { '2 issuers': of(2), '10,000 issuers': of(MANY) };
}

function handlers() {
  const of = (count) => {
    const registry = new WebhookHandlerRegistry();
    for (let i = 0; i < count; i++) {
      registry.add(i % 2 === 0 ? `order.e${i}` : `*.e${i}`, undefined, { name: `e${i}` });
    }
    return () => registry.find('default', 'order.e0');
  };
  return { '1 pattern': of(1), '10,000 patterns': of(MANY) };
}

async function endpoints() {
  const of = async (count) => {
    const store = new MemoryEndpointStore();
    const rest = { url: name(0), settings: {}, keys: [], version: 1, createdAt: 0, updatedAt: 0 };
    for (let i = 0; i < count; i++) {
      await store.insert({ id: `e${i}`, tenant: 'acme', events: [`order.e${i}`], ...rest });
    }
    return () => store.subscribed('order.e0', 'acme');
  };
  return { '10 endpoints': await of(10), '10,000 endpoints': await of(MANY) };
}

async function remembered(ids) {
  const of = async (count) => {
    const store = new MemoryReplayStore({ maxEntries: 4_000_000 });
    let next = 0;
    const handle = async () => {
      const { reservation } = await store.reserve(claimOf(next++));
      await store.commit(reservation);
    };
    for (let i = 0; i < count; i++) await handle();
    return handle;
  };
  return { 'an empty store': await of(1), [`${ids} remembered ids`]: await of(ids) };
}

function name(i) {
  return `https://shop-${i}.example`;
}
