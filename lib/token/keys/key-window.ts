/** When a key is valid, in seconds since the epoch: `opens <= now < closes`. */
export interface KeyWindow {
  readonly opens: number;
  readonly closes: number;
}

/** The window, `undefined` for a key that is always valid; or what is wrong with it. */
export type ParsedKeyWindow =
  | { readonly window: KeyWindow | undefined; readonly fault?: undefined }
  | { readonly window?: undefined; readonly fault: string };

/** A date, or a date and time with an offset: strings that mean the same instant on every machine. */
const MOMENT =
  /^(\d{4}-\d{2}-\d{2})(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2}))?$/;

const FORM =
  'must be a Date, or an ISO 8601 string with an offset such as "2026-01-31T00:00:00Z"; a number could be seconds or milliseconds';

/** Parses the window of a key. */
export function parseKeyWindow({
  notBefore,
  notAfter,
}: {
  readonly notBefore?: Date | string | undefined;
  readonly notAfter?: Date | string | undefined;
}): ParsedKeyWindow {
  if (notBefore === undefined && notAfter === undefined) return { window: undefined };
  const opens = notBefore === undefined ? -Infinity : secondsOf(notBefore);
  const closes = notAfter === undefined ? Infinity : secondsOf(notAfter);
  if (Number.isNaN(opens)) return { fault: `notBefore ${FORM}` };
  if (Number.isNaN(closes)) return { fault: `notAfter ${FORM}` };
  return opens < closes
    ? { window: { opens, closes } }
    : { fault: 'notAfter must be later than notBefore: otherwise the key is never valid' };
}

/** @returns NaN for anything but a Date or an ISO 8601 string */
function secondsOf(moment: unknown): number {
  if (moment instanceof Date) return moment.getTime() / 1_000;
  const [text, day] = typeof moment === 'string' ? (MOMENT.exec(moment) ?? []) : [];
  if (text === undefined || day === undefined) return NaN;
  return isOnCalendar(day) ? Date.parse(text) / 1_000 : NaN;
}

/** JavaScript reads the 30th of February as the 2nd of March. */
function isOnCalendar(day: string): boolean {
  const midnight = Date.parse(day);
  return !Number.isNaN(midnight) && new Date(midnight).toISOString().startsWith(day);
}
