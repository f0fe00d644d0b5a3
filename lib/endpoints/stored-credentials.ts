import {
  type CredentialKind,
  type EndpointCredentials,
  kindsOf,
} from '../sending/endpoint-credentials.js';
import type { StoredEndpoint } from './endpoint-store.js';
import type { SecretSealer } from './secret-sealer.js';

export interface StoredCredentials {
  readonly kinds: readonly CredentialKind[];
  /** The credentials as JSON, encrypted with AES-256-GCM and bound to the endpoint and the origin of its URL. */
  readonly sealed: string;
}

type Owner = Pick<StoredEndpoint, 'id' | 'url'>;

/** Bound to the origin: who can change the URL only must not have the credentials sent to another server. */
function bindingOf({ url }: Pick<Owner, 'url'>): string {
  return `credentials ${new URL(url).origin}`;
}

/** Whether the credentials of one URL may be sent to the other. */
export function sharesCredentials(a: Pick<Owner, 'url'>, b: Pick<Owner, 'url'>): boolean {
  return bindingOf(a) === bindingOf(b);
}

export function sealCredentials(
  sealer: SecretSealer,
  endpoint: Owner,
  credentials: EndpointCredentials,
): StoredCredentials {
  const sealed = sealer.seal(endpoint.id, bindingOf(endpoint), JSON.stringify(credentials));
  return { kinds: kindsOf(credentials), sealed };
}

/** @throws {@link WebhookStoreError} `sealed_secret_unreadable` */
export function openCredentials(
  sealer: SecretSealer,
  endpoint: Owner,
  { sealed }: StoredCredentials,
): EndpointCredentials {
  const opened = sealer.open(endpoint.id, { kid: bindingOf(endpoint), sealed }, 'credentials');
  return JSON.parse(opened) as EndpointCredentials;
}
