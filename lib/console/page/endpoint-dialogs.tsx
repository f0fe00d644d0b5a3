import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { EndpointRow, RotatedKeyAnswer } from '../console-api.js';
import { act } from './api.js';
import { Confirm, Dialog, Field, useNotices, valuesOf, type Notices } from './components.js';
import { linkTo } from './route.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.endpoints;

/** Steps that ask first. */
type Asked = 'disable' | 'pause' | 'resume';

/** What is open in front of an endpoint. */
export type OpenDialog = Asked | 'rotate' | 'remove' | 'edit';

/** Takes a step that changes the state of an endpoint, and returns the message about it. */
export async function take(
  step: Asked | 'enable',
  path: string,
  reload: () => void,
): Promise<string> {
  await act('POST', `${path}/${step}`);
  reload();
  return TEXT.saved;
}

/** The dialogs that ask before something happens to an endpoint. */
export function EndpointDialogs({
  id,
  path,
  dialog,
  notices,
  onChange,
  onClose,
}: {
  id: string;
  path: string;
  dialog: OpenDialog | undefined;
  notices: Notices;
  onChange: () => void;
  onClose: () => void;
}): JSX.Element {
  const [secret, setSecret] = useState<string>();
  const rotate = async (body: Record<string, string>): Promise<undefined> => {
    const rotated = await act<RotatedKeyAnswer>('POST', `${path}/rotate-key`, body);
    setSecret(rotated.secret);
    onChange();
  };
  const remove = async (): Promise<string> => {
    await act('DELETE', path);
    location.hash = linkTo('endpoints');
    return TEXT.removed;
  };
  return (
    <>
      {(dialog === 'disable' || dialog === 'pause' || dialog === 'resume') && (
        <Confirm
          title={TEXT[dialog]}
          text={TEXT[`${dialog}Ask`]}
          onConfirm={() => void notices.run(() => take(dialog, path, onChange))}
          onClose={onClose}
        />
      )}
      {dialog === 'rotate' && (
        <Confirm
          title={TEXT.rotate}
          text={TEXT.rotateAsk}
          onConfirm={(body) => void notices.run(() => rotate(body))}
          onClose={onClose}
        >
          <Field label={TEXT.overlap}>
            <select name="overlap">
              {Object.entries(TEXT.overlaps).map(([value, label]) => (
                <option value={value} key={value}>
                  {label}
                </option>
              ))}
            </select>
          </Field>
        </Confirm>
      )}
      {dialog === 'remove' && (
        <Confirm
          title={TEXT.remove}
          text={TEXT.removeAsk(id)}
          word={id}
          onConfirm={() => void notices.run(remove)}
          onClose={onClose}
        />
      )}
      {secret !== undefined && <Secret secret={secret} onClose={() => setSecret(undefined)} />}
    </>
  );
}

/** The fields of an endpoint that a user fills in. */
export interface EndpointValues {
  readonly id?: string;
  readonly url?: string;
  readonly events: readonly string[];
  readonly tenant?: string;
  readonly description?: string;
}

/** Adds or edits an endpoint. */
export function EndpointForm({
  title,
  endpoint,
  hasIdentity,
  onSave,
  onClose,
}: {
  title: string;
  endpoint?: EndpointRow;
  /** Whether the user chooses id and tenant: neither of an existing endpoint, nor in the portal. */
  hasIdentity: boolean;
  onSave: (values: EndpointValues) => Promise<void>;
  onClose: () => void;
}): JSX.Element {
  const notices = useNotices();
  return (
    <Dialog title={title} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const values = Object.fromEntries(valuesOf(event.currentTarget));
          const events = (values['events'] ?? '**').split(',').map((one) => one.trim());
          void notices.run(async () => {
            await onSave({ ...values, events });
            onClose();
            return TEXT.saved;
          });
        }}
      >
        {notices.element}
        {hasIdentity && (
          <Field label={TEXT.id}>
            <input name="id" />
          </Field>
        )}
        <Field label={TEXT.url}>
          <input name="url" type="url" required defaultValue={endpoint?.url ?? ''} />
        </Field>
        <Field label={TEXT.events} hint={TEXT.eventsHint}>
          <input name="events" defaultValue={endpoint?.events.join(', ') ?? ''} />
        </Field>
        {hasIdentity && (
          <Field label={TEXT.tenant}>
            <input name="tenant" />
          </Field>
        )}
        <Field label={TEXT.description}>
          <input name="description" defaultValue={endpoint?.description ?? ''} />
        </Field>
        <div class="buttons">
          <button type="submit">{TEXT.save}</button>
          <button type="button" class="quiet" onClick={onClose}>
            {STRINGS.cancel}
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** A new secret, which cannot be read again. */
export function Secret({ secret, onClose }: { secret: string; onClose: () => void }): JSX.Element {
  const [isCopied, setIsCopied] = useState(false);
  return (
    <Dialog title={TEXT.secretTitle} staysOpen onClose={onClose}>
      <p>{TEXT.secretAsk}</p>
      <pre tabIndex={0}>{secret}</pre>
      <div class="buttons">
        <button
          type="button"
          class="quiet"
          onClick={() => void navigator.clipboard.writeText(secret).then(() => setIsCopied(true))}
        >
          {isCopied ? STRINGS.copied : STRINGS.copy}
        </button>
        <button type="button" onClick={onClose}>
          {TEXT.secretDone}
        </button>
      </div>
    </Dialog>
  );
}
