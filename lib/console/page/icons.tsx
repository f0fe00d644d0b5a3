import type { JSX } from 'preact';

/** Strokes of the icons, in a square of 16. */
const PATHS = {
  overview: 'M2 9h3l2-5 3 8 2-5h2',
  deliveries: 'M2 3l12 5-12 5 2-5zM4 8h5',
  endpoints: 'M3 3h10v4H3zM3 9h10v4H3zM5.5 5h.01M5.5 11h.01',
  'event-types': 'M3 2h7l3 3v9H3zM10 2v3h3M5.5 8h5M5.5 11h5',
  inbox: 'M2 9l2.5-6h7L14 9v4H2zM2 9h3.5l1 2h3l1-2H14',
  'dead-letters': 'M8 2l6.5 11.5h-13zM8 6.5v3M8 11.5h.01',
  activity: 'M3 4h1M3 8h1M3 12h1M7 4h6M7 8h6M7 12h6',
} as const;

/** An icon beside a word that says the same. */
export function Icon({ name }: { name: keyof typeof PATHS }): JSX.Element {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}
