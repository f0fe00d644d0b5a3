import type { JSX } from 'preact';
import type { EndpointRow } from '../console-api.js';
import { Dialog, Field, FormDialog } from './action.js';
import { Copy } from './components.js';
import { STRINGS } from './strings.js';

const TEXT = STRINGS.endpoints;

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
  return (
    <FormDialog
      title={title}
      verb={TEXT.save}
      onClose={onClose}
      run={async (values) => {
        const events = (values['events'] ?? '**').split(',').map((one) => one.trim());
        await onSave({ ...values, events });
        return TEXT.saved;
      }}
    >
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
    </FormDialog>
  );
}

/** A new secret, which cannot be read again. */
export function Secret({ secret, onClose }: { secret: string; onClose: () => void }): JSX.Element {
  return (
    <Dialog title={TEXT.secretTitle} staysOpen onClose={onClose}>
      <p>{TEXT.secretAsk}</p>
      <pre tabIndex={0}>{secret}</pre>
      <div class="buttons">
        <Copy text={secret} />
        <button type="button" class="main" onClick={onClose}>
          {TEXT.secretDone}
        </button>
      </div>
    </Dialog>
  );
}
