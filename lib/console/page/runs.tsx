import type { JSX } from 'preact';
import type { RunList } from '../console-api.js';
import { Content, Empty, Panel, Pill, Time } from './components.js';
import { duration } from './format.js';
import { useLoaded } from './live.js';
import { reasonText, STRINGS } from './strings.js';

const TEXT = STRINGS.deadLetters;

/** The runs of a queued event's handlers, with what they threw. */
export function Runs({ id }: { id: string }): JSX.Element {
  const loaded = useLoaded<RunList>(`dead-letters/${encodeURIComponent(id)}/runs`, ['inbox']);
  return (
    <Panel title={TEXT.runsTitle}>
      <Content loaded={loaded}>
        {({ items }) =>
          items.length === 0 ? (
            <Empty text={TEXT.noRuns} />
          ) : (
            <ol class="timeline">
              {items.map(({ run, at, durationMs, failureReason, error }) => (
                <li key={at} class={failureReason === undefined ? 'good' : 'bad'}>
                  <div class="attempt">
                    <strong>{TEXT.run(run)}</strong>
                    <Pill tone={failureReason === undefined ? 'good' : 'bad'}>
                      {failureReason === undefined
                        ? STRINGS.inbox.outcomes.handled
                        : STRINGS.inbox.outcomes.failed}
                    </Pill>
                    <span>{failureReason !== undefined && reasonText(failureReason)}</span>
                    <span class="muted">
                      {duration(durationMs)} · <Time at={at} />
                    </span>
                  </div>
                  {error !== undefined && <pre tabIndex={0}>{error}</pre>}
                </li>
              ))}
            </ol>
          )
        }
      </Content>
    </Panel>
  );
}
