import { describe, it } from '@jest/globals';
import { MemoryEndpointStore } from '../../lib/endpoints/memory-endpoint.store.js';
import { OptionsEndpointStore } from '../../lib/endpoints/options-endpoint.store.js';
import { endpointStoreContract } from '../../lib/testing/endpoint-store.contract.js';

describe('MemoryEndpointStore', () => {
  for (const { name, run } of endpointStoreContract({ create: () => new MemoryEndpointStore() })) {
    it(name, run);
  }
});

describe('OptionsEndpointStore', () => {
  const create = (endpoints: ConstructorParameters<typeof OptionsEndpointStore>[0]) =>
    new OptionsEndpointStore(endpoints);
  for (const { name, run } of endpointStoreContract({ create, readOnly: true })) it(name, run);
});
