import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { RecoveryAnswer, RecoveryPreview, RecoveryRow } from '../console-api.js';
import { Action, FormDialog, Select } from './action.js';
import { act } from './api.js';
import { messageOf, Panel, Pill, Time, type Tone } from './components.js';
import { now } from './format.js';
import { useLoaded, type Loaded } from './live.js';
import { requestOf } from './search.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.recover;
const TONES: Record<RecoveryRow['status'], Tone> = {
  running: 'wait',
  done: 'good',
  cancelled: 'plain',
};
/** A recovery that ended earlier is listed as an activity only. */
const SHOWN_MS = 86_400_000;

/** The last recovery of an endpoint, which runs in the background. */
export function useRecovery(path: string): Loaded<RecoveryAnswer> {
  return useLoaded(`${path}/recovery`, ['endpoints']);
}

/** Starts a recovery of an endpoint, since a time that the user chooses, after a preview. */
export function Recover({ path, onStart }: { path: string; onStart: () => void }): JSX.Element {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <>
      <button type="button" class="quiet" onClick={() => setIsOpen(true)}>
        {TEXT.label}
      </button>
      {isOpen && <RecoverDialog path={path} onStart={onStart} onClose={() => setIsOpen(false)} />}
    </>
  );
}

function RecoverDialog({
  path,
  onStart,
  onClose,
}: {
  path: string;
  onStart: () => void;
  onClose: () => void;
}): JSX.Element {
  const [last, setLast] = useState<string>('24h');
  const [count, setCount] = useState(0);
  const [text, setText] = useState(TEXT.counting);
  const { since } = requestOf({ last });
  useEffect(() => {
    let isCurrent = true;
    setCount(0);
    setText(TEXT.counting);
    const preview = async (): Promise<void> => {
      try {
        const body = { since, dryRun: true };
        const answer = await act<RecoveryPreview>('POST', `${path}/recovery`, body);
        if (!isCurrent) return;
        setCount(answer.count);
        setText(TEXT.preview(answer.count));
      } catch (error) {
        if (isCurrent) setText(messageOf(error));
      }
    };
    void preview();
    return () => {
      isCurrent = false;
    };
  }, [last]);
  return (
    <FormDialog
      title={TEXT.title}
      verb={TEXT.verb}
      disabled={count === 0}
      onClose={onClose}
      run={async () => {
        await act('POST', `${path}/recovery`, { since, dryRun: false });
        onStart();
        return TEXT.started;
      }}
    >
      <Select
        label={TEXT.since}
        name="last"
        options={{ ...STRINGS.search.lastRanges, '': TEXT.ever }}
        selected={last}
        onChange={setLast}
      />
      <p role="status">{text}</p>
      <small>{TEXT.note}</small>
    </FormDialog>
  );
}

/** The progress of the last recovery, and how it ended. */
export function Recovery({
  path,
  recovery,
  mayCancel,
  onChange,
}: {
  path: string;
  recovery: RecoveryRow | undefined;
  mayCancel: boolean;
  onChange: () => void;
}): JSX.Element | null {
  if (recovery === undefined) return null;
  const { status, sent, skipped, total, startedAt, updatedAt, actor } = recovery;
  const isRunning = status === 'running';
  if (!isRunning && now() - Date.parse(updatedAt) > SHOWN_MS) return null;
  return (
    <Panel
      title={TEXT.title}
      aside={<Pill tone={TONES[status]}>{STRINGS.activity.outcomes[status]}</Pill>}
    >
      <div>
        {isRunning && <progress value={sent + skipped} max={total} aria-label={TEXT.title} />}
        <p>
          {TEXT.progress(sent, total)} {skipped > 0 && TEXT.skipped(skipped)}
        </p>
        <div class="bar">
          <small>
            {TEXT.startedBy(actor)} <Time at={startedAt} />
          </small>
          {isRunning && mayCancel && (
            <Action
              label={TEXT.cancel}
              ask={{ title: TEXT.cancel, text: TEXT.cancelAsk, verb: TEXT.cancel }}
              run={async () => {
                await act('DELETE', `${path}/recovery`);
                onChange();
                return TEXT.cancelled;
              }}
            />
          )}
        </div>
      </div>
    </Panel>
  );
}
