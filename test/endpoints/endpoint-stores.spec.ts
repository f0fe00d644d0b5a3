import { describe, it } from '@jest/globals';
import { endpointStoreContract } from 'nestjs-webhook-token/testing';
import { MemoryEndpointStore } from '../../lib/endpoints/memory-endpoint.store.js';

describe('MemoryEndpointStore', () => {
  for (const { name, run } of endpointStoreContract({ create: () => new MemoryEndpointStore() })) {
    it(name, run);
  }
});
