import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { messageOf, toast } from './components.js';
import { STRINGS } from './strings.js';

/** What is asked before an action. */
export interface Question {
  readonly title: string;
  readonly text: ComponentChildren;
  /** Names the action on the button. */
  readonly verb: string;
  /** Must be typed first. */
  readonly word?: string;
  /** Fields, whose values the action gets. */
  readonly fields?: ComponentChildren;
}

/** Values of the fields of a form that are filled in. */
export type Values = Readonly<Record<string, string>>;

/** Does what was asked; returns a message about its success. */
type Run = (values: Values) => Promise<string | undefined>;

/**
 * A button with an action: busy while it runs, so that it runs once; then a message. With `ask`, it asks first; a function
 * finds out what to ask, or returns why nothing can be done.
 */
export function Action({
  label,
  kind = 'quiet',
  disabled = false,
  ask,
  run,
}: {
  label: string;
  kind?: 'main' | 'quiet' | 'danger';
  disabled?: boolean;
  ask?: Question | (() => Promise<Question | string>);
  run: Run;
}): JSX.Element {
  // With its action: a live update may render another one while the dialog is open.
  const [open, setOpen] = useState<{ question: Question; run: Run }>();
  const [isBusy, setIsBusy] = useState(false);
  const once = useRef(false);
  const busy = async (work: () => Promise<void>): Promise<void> => {
    if (once.current) return;
    once.current = true;
    setIsBusy(true);
    try {
      await work();
    } catch (error) {
      toast(messageOf(error), 'bad');
    } finally {
      once.current = false;
      setIsBusy(false);
    }
  };
  const start = async (): Promise<void> => {
    if (ask === undefined) {
      const text = await run({});
      if (text !== undefined) toast(text, 'good');
      return;
    }
    const asked = typeof ask === 'function' ? await ask() : ask;
    if (typeof asked === 'string') toast(asked, 'plain');
    else setOpen({ question: asked, run });
  };
  return (
    <>
      <button
        type="button"
        class={kind}
        disabled={disabled || isBusy}
        aria-busy={isBusy}
        onClick={() => void busy(start)}
      >
        {label}
      </button>
      {open !== undefined && <Ask {...open} onClose={() => setOpen(undefined)} />}
    </>
  );
}

function Ask({
  question: { title, text, verb, word, fields },
  run,
  onClose,
}: {
  question: Question;
  run: Run;
  onClose: () => void;
}): JSX.Element {
  const [typed, setTyped] = useState('');
  return (
    <FormDialog
      title={title}
      verb={verb}
      disabled={word !== undefined && typed !== word}
      run={run}
      onClose={onClose}
    >
      <div>{text}</div>
      {fields}
      {word !== undefined && (
        <input
          aria-label={word}
          autocomplete="off"
          value={typed}
          onInput={({ currentTarget }) => setTyped(currentTarget.value)}
        />
      )}
    </FormDialog>
  );
}

/** A dialog with a form, which stays open while it works and shows what is wrong. */
export function FormDialog({
  title,
  verb,
  disabled = false,
  run,
  onClose,
  children,
}: {
  title: string;
  verb: string;
  disabled?: boolean;
  run: Run;
  onClose: () => void;
  children: ComponentChildren;
}): JSX.Element {
  const [error, setError] = useState<string>();
  const [isBusy, setIsBusy] = useState(false);
  const submit = async (form: HTMLFormElement): Promise<void> => {
    if (isBusy) return;
    setIsBusy(true);
    setError(undefined);
    try {
      const text = await run(valuesOf(form));
      onClose();
      if (text !== undefined) toast(text, 'good');
    } catch (failure) {
      // The user may have left the page.
      if (form.isConnected) setError(messageOf(failure));
      else toast(messageOf(failure), 'bad');
    } finally {
      setIsBusy(false);
    }
  };
  return (
    <Dialog title={title} staysOpen={isBusy} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void submit(event.currentTarget);
        }}
      >
        {children}
        {error !== undefined && (
          <div class="notice bad" role="alert">
            {error}
          </div>
        )}
        <div class="buttons">
          <button type="submit" class="main" disabled={disabled || isBusy} aria-busy={isBusy}>
            {verb}
          </button>
          <button type="button" class="quiet" disabled={isBusy} onClick={onClose}>
            {STRINGS.cancel}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** A modal dialog. It is open while it is rendered; Escape closes it, unless `staysOpen`. */
export function Dialog({
  title,
  staysOpen = false,
  onClose,
  children,
}: {
  title: string;
  staysOpen?: boolean;
  onClose: () => void;
  children: ComponentChildren;
}): JSX.Element {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const { activeElement } = document;
    dialog.current?.showModal();
    // Only a dialog that is closed before it is removed returns the focus.
    return () => (activeElement as HTMLElement | null)?.focus();
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-labelledby="dialog-title"
      onClose={() => (staysOpen ? dialog.current?.showModal() : onClose())}
    >
      <h2 id="dialog-title">{title}</h2>
      {children}
    </dialog>
  );
}

export function Field({
  label,
  hint,
  children,
}: {
  label: string;
  hint?: string | undefined;
  children: ComponentChildren;
}): JSX.Element {
  return (
    <label class="field">
      <span>{label}</span>
      {children}
      {hint !== undefined && <small>{hint}</small>}
    </label>
  );
}

export function Select({
  label,
  hint,
  name,
  options,
  selected,
  onChange,
}: {
  label: string;
  hint?: string | undefined;
  name: string;
  options: Readonly<Record<string, string>>;
  /** Default: the first. */
  selected?: string | undefined;
  onChange?: (value: string) => void;
}): JSX.Element {
  return (
    <Field label={label} hint={hint}>
      <select name={name} onChange={({ currentTarget }) => onChange?.(currentTarget.value)}>
        {Object.entries(options).map(([value, text]) => (
          <option value={value} key={value} selected={value === selected}>
            {text}
          </option>
        ))}
      </select>
    </Field>
  );
}

function valuesOf(form: HTMLFormElement): Values {
  return Object.fromEntries(
    [...new FormData(form)].flatMap(([name, value]) =>
      typeof value === 'string' && value.trim() !== '' ? [[name, value.trim()]] : [],
    ),
  );
}
