import type { JSX } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { RedeliverAnswer, RedeliverRequest } from '../console-api.js';
import { Field, FormDialog } from './action.js';
import { act } from './api.js';
import { messageOf } from './components.js';
import { RANGES, requestOf } from './search.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.recover;
/** Deliveries of one call: small enough to show progress. */
const BATCH = 200;

/** Sends deliveries again, or returns what would be sent again. */
export function redeliver(request: RedeliverRequest): Promise<RedeliverAnswer> {
  return act('POST', 'deliveries/redeliver', request);
}

/** The number of deliveries that would be sent again. */
export function countOf({ items }: RedeliverAnswer): number {
  return items.filter(({ reason }) => reason === undefined).length;
}

/** Sends the missed deliveries of an endpoint again, since a time that the user chooses, after a preview. */
export function Recover({
  endpoint,
  onChange,
}: {
  endpoint: string;
  onChange: () => void;
}): JSX.Element {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <>
      <button type="button" class="quiet" onClick={() => setIsOpen(true)}>
        {TEXT.label}
      </button>
      {isOpen && (
        <RecoverDialog endpoint={endpoint} onChange={onChange} onClose={() => setIsOpen(false)} />
      )}
    </>
  );
}

function RecoverDialog({
  endpoint,
  onChange,
  onClose,
}: {
  endpoint: string;
  onChange: () => void;
  onClose: () => void;
}): JSX.Element {
  const [last, setLast] = useState<string>('24h');
  const [preview, setPreview] = useState<RedeliverAnswer>();
  const [text, setText] = useState<string>(TEXT.counting);
  const [sent, setSent] = useState<number>();
  const filter = requestOf({ endpoint, last });
  useEffect(() => {
    let isCurrent = true;
    setPreview(undefined);
    setText(TEXT.counting);
    const count = async (): Promise<void> => {
      try {
        const answer = await redeliver({ filter, dryRun: true });
        if (!isCurrent) return;
        setPreview(answer);
        setText(TEXT.preview(countOf(answer), answer.more));
      } catch (error) {
        if (isCurrent) setText(messageOf(error));
      }
    };
    void count();
    return () => {
      isCurrent = false;
    };
  }, [last]);
  const run = async (): Promise<string> => {
    let count = 0;
    try {
      for (;;) {
        setSent(count);
        const { items, more } = await redeliver({ filter, dryRun: false, limit: BATCH });
        count += items.filter(({ redelivered }) => redelivered).length;
        if (!more || items.length === 0) return TEXT.done(count);
      }
    } finally {
      setSent(undefined);
      onChange();
    }
  };
  const total = preview === undefined ? 0 : countOf(preview);
  return (
    <FormDialog
      title={TEXT.title}
      verb={TEXT.verb}
      disabled={total === 0}
      run={run}
      onClose={onClose}
    >
      <Field label={TEXT.since}>
        <select
          disabled={sent !== undefined}
          value={last}
          onChange={({ currentTarget }) => setLast(currentTarget.value)}
        >
          {[...Object.keys(RANGES), ''].map((value) => (
            <option value={value} key={value}>
              {value === '' ? TEXT.ever : STRINGS.search.lastRanges[value as keyof typeof RANGES]}
            </option>
          ))}
        </select>
      </Field>
      <p role="status">{sent === undefined ? text : TEXT.progress(sent)}</p>
      {sent !== undefined && (
        <progress value={sent} max={Math.max(total, sent + BATCH)} aria-label={TEXT.title} />
      )}
      <small>{TEXT.note}</small>
    </FormDialog>
  );
}
