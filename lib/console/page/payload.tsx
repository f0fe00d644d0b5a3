import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { ConsolePayload } from '../console-api.js';
import { get } from './api.js';
import { useNotices } from './components.js';
import { bytes, indented } from './format.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.payload;

/** A payload, loaded when the user asks for it. */
export function Payload({ path }: { path: string }): JSX.Element {
  const notices = useNotices();
  const [payload, setPayload] = useState<ConsolePayload>();
  return (
    <section>
      <h2>{TEXT.title}</h2>
      {notices.element}
      {payload === undefined ? (
        <button
          type="button"
          onClick={() =>
            void notices.run(async () => {
              setPayload(await get<ConsolePayload>(path));
              return undefined;
            })
          }
        >
          {TEXT.show}
        </button>
      ) : (
        <>
          <p>
            {TEXT.facts(payload.contentType, bytes(payload.size))}
            {payload.truncated && ` ${TEXT.truncated}`}
            {payload.redacted && ` ${TEXT.redacted}`}
            {payload.base64 !== undefined && ` ${TEXT.binary}`}
          </p>
          <pre tabIndex={0}>
            {payload.text === undefined
              ? payload.base64
              : indented(payload.text, payload.contentType)}
          </pre>
        </>
      )}
    </section>
  );
}
