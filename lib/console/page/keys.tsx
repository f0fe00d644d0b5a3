import type { JSX } from 'preact';
import type { BlockedKeyList, ConsoleSession, DeliveryDetails } from '../console-api.js';
import { Action } from './action.js';
import { act } from './api.js';
import { Panel, Time } from './components.js';
import { Reason, resend } from './deliveries.js';
import { useLoaded, type Loaded } from './live.js';
import { linkTo } from './route.js';
import { STRINGS } from './strings.js';
import { Table } from './table.js';

const TEXT = STRINGS.keys;

/** The keys of an endpoint whose later deliveries wait for a missed one. */
export function useBlockedKeys(endpoint: string | undefined): Loaded<BlockedKeyList> {
  const path = endpoint && `endpoints/${encodeURIComponent(endpoint)}/blocked-keys`;
  return useLoaded(path, ['deliveries']);
}

/** Lets the later deliveries of a key continue without a missed one. */
export function Skip({
  id,
  orderingKey,
  onDone,
}: {
  id: string;
  orderingKey: string;
  onDone: () => void;
}): JSX.Element {
  return (
    <Action
      label={TEXT.skip}
      ask={{ title: TEXT.skipTitle, text: TEXT.skipAsk(orderingKey), verb: TEXT.skip }}
      run={async () => {
        const { skipped } = await act<{ skipped: boolean }>(
          'POST',
          `deliveries/${encodeURIComponent(id)}/skip`,
        );
        onDone();
        return skipped ? TEXT.skipped(orderingKey) : TEXT.notSkipped(orderingKey);
      }}
    />
  );
}

/** What the order of its key means for a delivery. */
export function KeyNotice({ of: delivery }: { of: DeliveryDetails }): JSX.Element | null {
  const { keyState, orderingKey = '', endpointId } = delivery;
  const isWaiting = keyState === 'waiting';
  const { data } = useBlockedKeys(isWaiting ? endpointId : undefined);
  if (keyState === undefined) return null;
  const blocker = data?.items.find((one) => one.orderingKey === orderingKey);
  return (
    <div class={`notice alert ${isWaiting ? 'wait' : 'bad'}`}>
      <span>{isWaiting ? TEXT.waits(orderingKey) : TEXT.blocks(orderingKey)}</span>
      {blocker !== undefined && (
        <a href={linkTo('deliveries', blocker.deliveryId)}>{TEXT.showBlocker}</a>
      )}
    </div>
  );
}

/** The blocked keys of an endpoint, with what can be done about each. */
export function BlockedKeys({
  blocked: { data, reload },
  session,
}: {
  blocked: Loaded<BlockedKeyList>;
  session: ConsoleSession;
}): JSX.Element | null {
  if (data === undefined || data.items.length === 0) return null;
  const mayResend = session.capabilities.includes('redeliver');
  return (
    <Panel title={TEXT.title}>
      <p class="muted">{TEXT.intro}</p>
      <Table
        caption={TEXT.title}
        rows={data.items}
        keyOf={({ deliveryId }) => deliveryId}
        columns={[
          { name: TEXT.key, cell: ({ orderingKey }) => <code>{orderingKey}</code> },
          {
            name: STRINGS.status.dead,
            cell: ({ deliveryId, event }) => <a href={linkTo('deliveries', deliveryId)}>{event}</a>,
          },
          { name: STRINGS.deliveries.reason, cell: (row) => <Reason code={row.failureReason} /> },
          { name: TEXT.since, cell: ({ since }) => <Time at={since} /> },
          mayResend && {
            name: TEXT.actions,
            cell: ({ deliveryId, orderingKey }) => (
              <span class="buttons">
                <Action
                  label={STRINGS.deliveries.retryNow}
                  run={async () => {
                    const { text } = await resend({ id: deliveryId, status: 'dead' });
                    reload();
                    return text;
                  }}
                />
                <Skip id={deliveryId} orderingKey={orderingKey} onDone={reload} />
              </span>
            ),
          },
        ]}
      />
    </Panel>
  );
}
