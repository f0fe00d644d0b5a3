import { describe, it } from '@jest/globals';
import { MemoryEndpointStore } from '../../lib/endpoints/memory-endpoint.store.js';
import { endpointStoreContract } from '../../lib/testing/endpoint-store.contract.js';

describe('MemoryEndpointStore', () => {
  for (const { name, run } of endpointStoreContract({ create: () => new MemoryEndpointStore() })) {
    it(name, run);
  }
});
