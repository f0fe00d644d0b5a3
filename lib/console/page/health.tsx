import type { JSX } from 'preact';
import type { EndpointHealth } from '../console-api.js';
import { Pill, type Tone } from './components.js';
import { clockTime, percent, relative } from './format.js';
import { reasonText, STRINGS } from './strings.js';

const TEXT = STRINGS.endpoints;

const TONES: Record<EndpointHealth['state'], Tone> = {
  disabled: 'plain',
  paused: 'wait',
  failing: 'bad',
  healthy: 'good',
  idle: 'plain',
};

export function HealthPill({ health: { state } }: { health: EndpointHealth }): JSX.Element {
  return <Pill tone={TONES[state]}>{STRINGS.health[state]}</Pill>;
}

/** Why an endpoint is in its state, and since when. */
export function healthText({
  state,
  since,
  reason,
  successRate24h,
  circuit,
}: EndpointHealth): string {
  const rate = successRate24h === undefined ? undefined : TEXT.rate(percent(successRate24h));
  const start = since === undefined ? undefined : TEXT.since(clockTime(since));
  const parts = {
    healthy: [rate],
    idle: [TEXT.noAttempt],
    paused: [STRINGS.disabledReason.requested, start],
    disabled: [STRINGS.disabledReason[reason as 'gone'] ?? reason, start],
    failing: [
      reasonText(reason),
      start,
      rate,
      circuit.pausedUntil && TEXT.nextTry(relative(circuit.pausedUntil)),
    ],
  }[state];
  return parts.filter((part) => part !== undefined && part !== '').join('\u00a0· ');
}
