import type { JSX } from 'preact';
import type { EndpointFormatRow, EndpointRow } from '../console-api.js';
import { Facts, Time } from './components.js';
import { dateTime, duration } from './format.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.endpoints;

function profileText(profile: unknown): string {
  return Array.isArray(profile) ? profile.join(' + ') : String(profile);
}

/** The settings of an endpoint, and what is known about it. */
export function EndpointFacts({
  endpoint,
  format,
}: {
  endpoint: EndpointRow;
  format: EndpointFormatRow | undefined;
}): JSX.Element {
  const { health, disabled, keys } = endpoint;
  const { counts, lastSuccessAt } = health;
  return (
    <Facts
      facts={[
        [TEXT.id, <code>{endpoint.id}</code>],
        [TEXT.url, <code>{endpoint.url}</code>],
        [TEXT.events, <code>{endpoint.events.join(', ')}</code>],
        [TEXT.tenant, endpoint.tenant],
        ...Object.entries(endpoint.settings)
          // The format says it, with what the publisher has set.
          .filter(([name]) => name !== 'profile')
          .map(([name, value]) => [settingName(name), settingText(name, value)] as const),
        [
          TEXT.credentials,
          endpoint.credentials?.map((kind) => TEXT.credentialKinds[kind]).join(', '),
        ],
        [
          TEXT.disabled,
          disabled && (
            <>
              {STRINGS.disabledReason[disabled.reason]}, <Time at={disabled.at} />
            </>
          ),
        ],
        [TEXT.counts, counts && TEXT.countsOf(counts)],
        [TEXT.lastSuccess, lastSuccessAt && <Time at={lastSuccessAt} />],
        [
          TEXT.keys,
          keys
            .map(({ kid, signsFrom, state }) => TEXT.keyFrom(kid, dateTime(signsFrom), state))
            .join('; '),
        ],
        [TEXT.settings.profile, format && <code>{profileText(format.profile)}</code>],
        [
          TEXT.acknowledged,
          format?.acknowledged && (
            <>
              <code>{profileText(format.acknowledged.profile)}</code>, {TEXT.lastTime}{' '}
              <Time at={format.acknowledged.at} />
            </>
          ),
        ],
        [TEXT.source, TEXT.sources[endpoint.source]],
        [TEXT.created, endpoint.createdAt && <Time at={endpoint.createdAt} />],
      ]}
    />
  );
}

function settingName(name: string): string {
  return (TEXT.settings as Readonly<Record<string, string>>)[name] ?? name;
}

function settingText(name: string, value: unknown): string {
  if (name === 'onDead') return TEXT.onDead[value as 'skip' | 'block'];
  if (name === 'timeout') return duration(Number(value));
  if (name === 'rateLimit') return TEXT.rateLimitOf(value as { perSecond: number; burst?: number });
  return typeof value === 'string' ? value : JSON.stringify(value);
}
