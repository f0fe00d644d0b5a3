const WIDTH = 760;
const LABELS = 300;
const BARS = WIDTH - LABELS - 80;
const ROW = 30;
const TOP = 62;

/** Colours for light and dark pages; an SVG in an `img` follows the reader's preference. */
const STYLE = `
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .note { font-size: 11px; fill: #59636e }
  .label { text-anchor: end }
  .bar { fill: #8c959f }
  .own { fill: #0969da }
  .whisker { stroke: #1f2328; stroke-width: 1.5; fill: none }
  .baseline { stroke: #bc4c00; stroke-width: 1.5; stroke-dasharray: 4 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .note { fill: #9198a1 }
    .bar { fill: #656c76 }
    .own { fill: #4493f8 }
    .whisker { stroke: #f0f6fc }
    .baseline { stroke: #f0883e }
  }
`;

/**
 * Draws a comparison as horizontal bars with whiskers for the spread of the rounds, and a line at the baseline, if any.
 *
 * @param comparison `{ title, unit, baseline?, rows }`: rows have a `ratio` or a `value`, and optionally `low` and `high`
 * @param source machine and date of the measurement
 */
export function chartOf({ title, unit, baseline, rows }, source) {
  const bars = rows.map(({ name, ratio, value = ratio, low = value, high = value }) => ({
    name,
    value,
    low,
    high,
  }));
  const scale = BARS / Math.max(...bars.map(({ high }) => high));
  const height = TOP + bars.length * ROW + 30;
  const bottom = TOP + bars.length * ROW;
  const spread = baseline === undefined ? 'all rounds' : 'the middle half of the rounds';
  const whiskers = bars.some(({ low, high }) => low < high) ? `; whiskers: ${spread}` : '';
  const atBaseline = LABELS + scale;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${escaped(title)}">`,
    `<style>${STYLE}</style>`,
    text(16, 22, title, 'title'),
    text(16, 42, baseline === undefined ? unit : `${unit} of “${baseline}”`, 'note'),
    ...bars.map((bar, index) => rowOf(bar, TOP + index * ROW, scale)),
    ...(baseline === undefined
      ? []
      : [`<path class="baseline" d="M${px(atBaseline)} ${TOP - 6}V${bottom}"/>`]),
    text(16, height - 10, `${source}${whiskers}`, 'note'),
    '</svg>',
    '',
  ].join('\n');
}

function rowOf({ name, value, low, high }, y, scale) {
  const middle = y + ROW / 2 - 2;
  const [from, to] = [low, high].map((edge) => px(LABELS + edge * scale));
  const kind = name.startsWith('nestjs-webhook-token') ? 'bar own' : 'bar';
  return [
    text(LABELS - 10, middle + 4, name, 'label'),
    `<rect class="${kind}" x="${LABELS}" y="${y + 3}" width="${px(value * scale)}" height="${ROW - 10}"/>`,
    ...(low < high ? [`<path class="whisker" d="M${from} ${middle - 4}v8m0-4H${to}m0-4v8"/>`] : []),
    text(Math.max(to, px(LABELS + value * scale)) + 8, middle + 4, figure(value)),
  ].join('\n');
}

function text(x, y, content, kind) {
  const style = kind === undefined ? '' : ` class="${kind}"`;
  return `<text${style} x="${x}" y="${y}">${escaped(content)}</text>`;
}

function figure(value) {
  return value >= 100 ? Math.round(value).toLocaleString('en-GB') : value.toFixed(2);
}

function px(length) {
  return Math.round(length * 10) / 10;
}

function escaped(content) {
  return content.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}
