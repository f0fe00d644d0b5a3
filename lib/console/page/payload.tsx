import type { JSX } from 'preact';
import { useMemo, useState } from 'preact/hooks';
import type { ConsolePayload } from '../console-api.js';
import { Action } from './action.js';
import { get } from './api.js';
import { Copy, Panel } from './components.js';
import { bytes, indented } from './format.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.payload;

/** A payload, loaded when the user asks for it. */
export function Payload({ path, isDropped }: { path: string; isDropped?: boolean }): JSX.Element {
  const [payload, setPayload] = useState<ConsolePayload>();
  if (isDropped === true) {
    return (
      <Panel title={TEXT.title}>
        <p class="muted">{TEXT.dropped}</p>
      </Panel>
    );
  }
  const shown = payload && (payload.text ?? payload.base64 ?? '');
  return (
    <Panel title={TEXT.title} aside={shown !== undefined && <Copy text={shown} />}>
      {payload === undefined ? (
        <div class="buttons">
          <Action
            label={TEXT.show}
            run={async () => {
              setPayload(await get<ConsolePayload>(path));
              return undefined;
            }}
          />
        </div>
      ) : (
        <>
          <p class="muted">
            {TEXT.facts(payload.contentType, bytes(payload.size))}
            {payload.truncated && ` ${TEXT.truncated}`}
            {payload.redacted && ` ${TEXT.redacted}`}
            {payload.base64 !== undefined && ` ${TEXT.binary}`}
          </p>
          <pre tabIndex={0}>
            {payload.text === undefined ? (
              payload.base64
            ) : (
              <Colored text={indented(payload.text, payload.contentType)} />
            )}
          </pre>
        </>
      )}
    </Panel>
  );
}

/**
 * Members, strings, and other values of JSON. A string without a closing quote, as in a payload that is cut, ends with the text: an
 * expression that requires the quote tries again from every later one, in quadratic time.
 */
const TOKENS =
  /("(?:[^"\\]|\\[^])*"?)(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** JSON with colours; any other text stays readable. */
export function Colored({ text }: { text: string }): JSX.Element {
  return useMemo(() => colored(text), [text]);
}

function colored(text: string): JSX.Element {
  const parts: (string | JSX.Element)[] = [];
  let end = 0;
  for (const match of text.matchAll(TOKENS)) {
    const [token, string, colon] = match;
    parts.push(text.slice(end, match.index));
    const kind = colon !== undefined ? 'member' : string !== undefined ? 'string' : 'value';
    parts.push(
      <span key={match.index} class={kind}>
        {token}
      </span>,
    );
    end = match.index + token.length;
  }
  return (
    <>
      {parts}
      {text.slice(end)}
    </>
  );
}
