import { ConfigurationFaults } from '../options/configuration-faults.js';
import { checkShape, isOptions } from '../options/option-shape.js';
import { WebhookDeliveryError } from '../errors/webhook-delivery.error.js';
import { WebhookDestinationBlockedError } from '../errors/webhook-destination-blocked.error.js';
import { isWebhookError } from '../errors/webhook.error.js';
import { parseSigningKey } from '../token/keys/signing-key.js';
import { applySettings, resolvePatterns } from '../publisher/options/endpoint-options.resolver.js';
import { checkProfile } from '../sending/destination-profile.js';
import type {
  ResolvedDestination,
  ResolvedPublisherOptions,
} from '../publisher/options/publisher-options.interface.js';
import { ENDPOINT_CHANGES, FIXED, NEW_ENDPOINT, REMOVABLE, SETTINGS } from './endpoint-shape.js';
import { frozenCopy } from './frozen-copy.js';
import type { StoredEndpointSettings } from './endpoint-store.js';
import type {
  EndpointChanges,
  EndpointSettings,
  NewEndpoint,
} from './webhook-endpoint.interface.js';

/** A description of an endpoint, checked as far as no network is needed; what a change leaves out is absent. */
export interface EndpointDraft extends Omit<NewEndpoint, keyof EndpointSettings | 'url'> {
  readonly url: string | undefined;
  readonly settings: StoredEndpointSettings;
  /** Names of what a change takes away. */
  readonly removed: readonly string[];
}

/** Checks descriptions of endpoints, which may come from a tenant's browser: every fault is listed, with its remedy. */
export class EndpointInput {
  constructor(private readonly options: Pick<ResolvedPublisherOptions, 'defaults' | 'egress'>) {}

  /**
   * @throws {@link WebhookDeliveryError} `invalid_option`
   * @throws {@link WebhookDestinationBlockedError} where the URL is all that is wrong
   */
  readNew(input: NewEndpoint): EndpointDraft {
    const faults = new ConfigurationFaults('');
    if (!isOptions(input))
      throw invalidEndpoint([{ path: 'endpoint', message: 'must be an object' }]);
    const fit = checkShape<NewEndpoint>(input, NEW_ENDPOINT, faults);
    const { secret, signing } = fit;
    faults.require((input as { url?: unknown }).url !== undefined, 'url', 'is missing');
    if (secret !== undefined) checkSecret(secret, faults);
    faults.require(
      secret === undefined || signing !== 'publisher',
      'secret',
      "stands beside signing: 'publisher', where the publisher's own key signs: remove one of them",
    );
    const { settings, blocked } = this.readShared(fit, faults);
    const events = resolvePatterns(fit.events, faults);
    throwIfWrong(faults, blocked);
    const { id, url, tenant, description, metadata } = fit;
    // Copied: whoever gave it may go on changing it while the URL is looked at.
    const draft = { id, url, events, tenant, description, metadata, secret, signing, settings };
    return frozenCopy({ ...draft, removed: [] });
  }

  /**
   * @throws {@link WebhookDeliveryError} `invalid_option`
   * @throws {@link WebhookDestinationBlockedError} where the URL is all that is wrong
   */
  readChanges(input: EndpointChanges): EndpointDraft {
    const faults = new ConfigurationFaults('');
    if (!isOptions(input))
      throw invalidEndpoint([{ path: 'changes', message: 'must be an object' }]);
    const given = Object.entries(input).filter(([, value]) => value !== undefined);
    for (const [name] of given) {
      const remedy = Object.hasOwn(FIXED, name) ? FIXED[name] : undefined;
      if (remedy !== undefined) faults.add(name, remedy);
    }
    const isRemoval = ([name, value]: [string, unknown]): boolean =>
      value === null && REMOVABLE.includes(name);
    const rest = given.filter((entry) => !Object.hasOwn(FIXED, entry[0]) && !isRemoval(entry));
    const fit = checkShape<NewEndpoint>(
      Object.fromEntries(rest),
      ENDPOINT_CHANGES as typeof NEW_ENDPOINT,
      faults,
    );
    const { settings, blocked } = this.readShared(fit, faults);
    const events = fit.events === undefined ? undefined : resolvePatterns(fit.events, faults);
    throwIfWrong(faults, blocked);
    const { url, description, metadata } = fit;
    const removed = given.filter(isRemoval).map(([name]) => name);
    return frozenCopy({ url, events, description, metadata, settings, removed });
  }

  /**
   * Checks what settings come to together.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  requireUsable(settings: StoredEndpointSettings): void {
    const faults = new ConfigurationFaults('');
    this.settle(settings, faults);
    throwIfWrong(faults);
  }

  private readShared(
    fit: Partial<NewEndpoint>,
    faults: ConfigurationFaults,
  ): { settings: StoredEndpointSettings; blocked: WebhookDestinationBlockedError | undefined } {
    const own = Object.fromEntries(
      Object.entries(fit).filter(([name]) => Object.hasOwn(SETTINGS, name)),
    ) as EndpointSettings;
    const { timeout } = this.settle(own, faults);
    return {
      settings: {
        ...own,
        ...(own.timeout !== undefined && { timeout }),
      } as StoredEndpointSettings,
      blocked: fit.url === undefined ? undefined : this.refusalOf(fit.url),
    };
  }

  private settle(own: EndpointSettings, faults: ConfigurationFaults): ResolvedDestination {
    const settled = applySettings(this.options.defaults, own, faults);
    // What an endpoint takes over from the publisher is right already.
    if (own.profile !== undefined || own.method !== undefined) checkProfile(settled, faults);
    return settled;
  }

  private refusalOf(url: string): WebhookDestinationBlockedError | undefined {
    try {
      this.options.egress.checkUrl(url);
      return undefined;
    } catch (error) {
      if (!isWebhookError(error, 'destination_blocked')) throw error;
      return error as WebhookDestinationBlockedError;
    }
  }
}

/** Says what is wrong with a secret, without quoting it. */
export function checkSecret(secret: unknown, faults: ConfigurationFaults): void {
  const fault = typeof secret === 'string' ? parseSigningKey(secret).fault : 'must be a text';
  if (fault !== undefined) faults.add('secret', fault);
}

/** @throws {@link WebhookDeliveryError} `invalid_option` with every fault; the refusal of the URL, if that is all */
export function throwIfWrong(
  faults: ConfigurationFaults,
  blocked?: WebhookDestinationBlockedError,
): void {
  if (faults.all.length === 0 && blocked !== undefined) throw blocked;
  if (blocked !== undefined) faults.add('url', blocked.message);
  if (faults.all.length > 0) throw invalidEndpoint(faults.all);
}

function invalidEndpoint(faults: ConfigurationFaults['all']): WebhookDeliveryError {
  const lines = faults.map(({ path, message }) => `  - ${path}: ${message}`);
  return new WebhookDeliveryError(
    'invalid_option',
    `The endpoint has ${faults.length === 1 ? 'a fault' : `${faults.length} faults`}:\n${lines.join('\n')}`,
    { faults },
  );
}
