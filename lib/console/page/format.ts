/** Language of numbers and times. */
let language: string | undefined;
/** Milliseconds that the server's clock is ahead of the browser's. */
let offset = 0;

/** Sets the clock of the page. That of the browser may be wrong, and the times to show are the server's. */
export function setClock(serverTime: string): void {
  offset = Date.parse(serverTime) - Date.now();
}

/** The server's time in epoch milliseconds. */
export function now(): number {
  return Date.now() + offset;
}

/** Sets the language of numbers and times, in the region that the browser prefers for it. */
export function setFormats(tag: string): void {
  language = navigator.languages.find((one) => one.startsWith(`${tag}-`)) ?? tag;
}

/** A number with its groups of digits, and as many digits after the point as given. */
export function number(value: number, digits = 0): string {
  const options = { minimumFractionDigits: digits, maximumFractionDigits: digits };
  return value.toLocaleString(language, options);
}

/** Milliseconds as `350 ms`, `4.2 s`, `3 min`, `2 h` or `5 d`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${number(ms / 1_000, 1)} s`;
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 86_400_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

/** Bytes as `21 B`, `4.5 kB` or `1.2 MB`. */
export function bytes(size: number): string {
  if (size < 1_000) return `${size} B`;
  return size < 1_000_000 ? `${number(size / 1_000, 1)} kB` : `${number(size / 1e6, 1)} MB`;
}

/** Local date and time, to the second. */
export function dateTime(iso: string): string {
  return new Date(iso).toLocaleString(language, { dateStyle: 'medium', timeStyle: 'medium' });
}

/** Local time of the day, with the date if it is another day. */
export function clockTime(iso: string): string {
  const date = new Date(iso);
  const isToday = date.toDateString() === new Date(now()).toDateString();
  const time = { hour: '2-digit', minute: '2-digit' } as const;
  return date.toLocaleString(
    language,
    isToday ? time : { month: 'short', day: 'numeric', ...time },
  );
}

const UNITS = [
  ['second', 1_000, 60_000],
  ['minute', 60_000, 3_600_000],
  ['hour', 3_600_000, 86_400_000],
  ['day', 86_400_000, 7 * 86_400_000],
] as const;

/** A time from now on, such as `3 min. ago`; the date of one that is further away than a week. */
export function relative(iso: string): string {
  const distance = new Date(iso).getTime() - now();
  const unit = UNITS.find(([, , below]) => Math.abs(distance) < below);
  if (unit === undefined) {
    return new Date(iso).toLocaleDateString(language, { dateStyle: 'medium' });
  }
  const [name, length] = unit;
  const count = Math.trunc(distance / length);
  // `auto` says "now", but also "yesterday" for 24 hours and more, which may be two calendar days ago.
  const numeric = count === 0 ? 'auto' : 'always';
  return new Intl.RelativeTimeFormat(language, { style: 'short', numeric }).format(count, name);
}

/** A share of 1 as `97.6 %`. */
export function percent(share: number): string {
  return share.toLocaleString(language, { style: 'percent', maximumFractionDigits: 1 });
}

/** Strings, white space, empty objects and arrays, and punctuation of JSON. */
const JSON_TOKENS = /"(?:[^"\\]|\\.)*"|\s+|([{[])\s*([}\]])|[{}[\],:]/g;
/** Levels of indentation. More would make a long text of a payload that is only nested. */
const MAX_INDENT = 40;

/** Indents JSON, and keeps numbers, names and escapes as they were sent; returns other strings as they are. */
export function indented(text: string, contentType: string): string {
  if (!contentType.includes('json') || parseJson(text) === undefined) return text;
  let depth = 0;
  const newLine = (): string => `\n${'  '.repeat(Math.min(depth, MAX_INDENT))}`;
  return text.replace(JSON_TOKENS, (token: string, opening?: string, closing?: string) => {
    if (opening !== undefined) return `${opening}${closing}`;
    switch (token[0]) {
      case '{':
      case '[':
        depth++;
        return token + newLine();
      case '}':
      case ']':
        depth--;
        return newLine() + token;
      case ',':
        return token + newLine();
      case ':':
        return ': ';
      case '"':
        return token;
      default:
        return '';
    }
  });
}

/** `undefined` if it is no JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
