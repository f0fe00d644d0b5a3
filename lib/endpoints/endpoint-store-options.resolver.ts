import type { ConfigurationFaults } from '../options/configuration-faults.js';
import { checkShape, hasMethods, isOptions, type OptionShape } from '../options/option-shape.js';
import { isKeyId, KEY_ID_RULE } from '../token/identifier.js';
import type { EndpointStore } from './endpoint-store.js';
import { MemoryEndpointStore } from './memory-endpoint.store.js';
import { sealingKeyFault, type SealingKey, SecretSealer } from './secret-sealer.js';

const METHODS = ['insert', 'find', 'subscribed', 'list', 'replace', 'remove'];

const SEALING_KEY: OptionShape<SealingKey> = { id: undefined, key: undefined };

export interface ResolvedEndpointStore {
  readonly endpointStore: EndpointStore;
  readonly sealer: SecretSealer;
}

/** Resolves the options of the endpoint store. Faults are collected, not thrown. */
export function resolveEndpointStore(
  options: {
    readonly endpointStore?: EndpointStore | undefined;
    readonly sealingKeys?: readonly SealingKey[] | undefined;
  },
  faults: ConfigurationFaults,
): ResolvedEndpointStore {
  const { endpointStore = new MemoryEndpointStore(), sealingKeys } = options;
  const isStore = hasMethods(endpointStore, METHODS);
  faults.require(isStore, 'endpointStore', 'must be an EndpointStore');
  const before = faults.all.length;
  if (sealingKeys !== undefined) {
    checkSealingKeys(sealingKeys, faults);
  } else if (isStore && endpointStore.durable) {
    faults.add(
      'sealingKeys',
      'is required with a durable endpointStore, which stores secrets: set `sealingKeys: [{ id: \'1\', key }]` with a key of "openssl rand -base64 32"',
    );
  }
  const isSealed = sealingKeys !== undefined && faults.all.length === before;
  return {
    endpointStore,
    sealer: isSealed ? new SecretSealer(sealingKeys) : SecretSealer.ofProcess(),
  };
}

function checkSealingKeys(keys: unknown, faults: ConfigurationFaults): void {
  if (!Array.isArray(keys) || keys.length === 0) {
    faults.add('sealingKeys', 'must be a list with at least one key: { id, key }');
    return;
  }
  const ids = new Set<unknown>();
  keys.forEach((entry: unknown, index) => {
    const at = faults.below(`sealingKeys[${index}]`);
    if (!isOptions(entry)) return at.add('', 'must be an object: { id, key }');
    const { id, key } = checkShape(entry, SEALING_KEY, at);
    at.require(isKeyId(id), 'id', KEY_ID_RULE.replace(/^kid/, 'id'));
    at.require(!ids.has(id), 'id', 'is listed twice: give each key its own id');
    ids.add(id);
    const fault = sealingKeyFault(key);
    if (fault !== undefined) at.add('key', fault);
  });
}
