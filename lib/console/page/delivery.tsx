import type { JSX } from 'preact';
import type {
  ConsolePayload,
  ConsoleSession,
  DeliveryAttempt,
  DeliveryDetails,
} from '../console-api.js';
import { Action } from './action.js';
import { get } from './api.js';
import { Content, Copy, Empty, Facts, Panel, Pill, Time, Title } from './components.js';
import { Destination, KeyPill, NextAttempt, Reason, resend, StatusPill } from './deliveries.js';
import { duration } from './format.js';
import { KeyNotice, Skip } from './keys.js';
import { useLoaded } from './live.js';
import { Payload } from './payload.js';
import { linkBack, linkTo, navigation } from './route.js';
import { reasonText, STRINGS } from './strings.js';

const TEXT = STRINGS.deliveries;

export function Delivery({ session, id }: { session: ConsoleSession; id: string }): JSX.Element {
  const path = `deliveries/${encodeURIComponent(id)}`;
  const loaded = useLoaded<DeliveryDetails>(path, ['deliveries']);
  const mayResend = session.capabilities.includes('redeliver');
  const mayView = session.capabilities.includes('view-payload');
  const sendAgain = async (shown: DeliveryDetails): Promise<string> => {
    const goTo = navigation();
    const { text, as } = await resend(shown).finally(loaded.reload);
    if (as !== undefined) goTo(linkTo('deliveries', as));
    return text;
  };
  return (
    <>
      <a class="back" href={linkBack('deliveries')}>
        {TEXT.back}
      </a>
      <Title text={loaded.data?.event ?? TEXT.one(id)} />
      <Content loaded={loaded}>
        {(delivery) => (
          <>
            <p class="state">
              <StatusPill of={delivery} /> <KeyPill of={delivery} />{' '}
              <Reason code={delivery.failureReason} />
              {delivery.nextAttemptAt !== undefined && delivery.keyState === undefined && (
                <span>
                  {TEXT.next} <NextAttempt of={delivery} />
                </span>
              )}
            </p>
            <KeyNotice of={delivery} />
            <div class="buttons">
              {mayResend && delivery.payloadDropped !== true && (
                <Action
                  kind="main"
                  label={delivery.status === 'delivered' ? TEXT.redeliver : TEXT.retryNow}
                  run={async () => sendAgain(delivery)}
                  {...(delivery.status === 'delivered' && {
                    ask: {
                      title: TEXT.redeliver,
                      text: TEXT.redeliverAsk(1, false),
                      verb: TEXT.redeliver,
                    },
                  })}
                />
              )}
              {delivery.keyState === 'blocking' && mayResend && (
                <Skip id={id} orderingKey={delivery.orderingKey ?? ''} onDone={loaded.reload} />
              )}
              <Copy label={TEXT.copyCurl} text={async () => curlOf(delivery, path, mayView)} />
            </div>
            <DeliveryFacts delivery={delivery} />
            <Attempts of={delivery} />
            {mayView && (
              <Payload path={`${path}/payload`} isDropped={delivery.payloadDropped === true} />
            )}
          </>
        )}
      </Content>
    </>
  );
}

function DeliveryFacts({ delivery }: { delivery: DeliveryDetails }): JSX.Element {
  return (
    <Facts
      facts={[
        [STRINGS.labels.endpoint, <Destination row={delivery} />],
        [STRINGS.endpoints.url, delivery.url && <code>{delivery.url}</code>],
        [STRINGS.labels.tenant, delivery.tenant],
        [
          STRINGS.labels.eventId,
          <a href={linkTo('deliveries', undefined, { eventId: delivery.eventId })}>
            <code>{delivery.eventId}</code>
          </a>,
        ],
        [TEXT.id, <code>{delivery.id}</code>],
        [STRINGS.keys.key, delivery.orderingKey && <code>{delivery.orderingKey}</code>],
        [STRINGS.keys.sequence, delivery.sequence],
        [TEXT.created, <Time at={delivery.createdAt} />],
        [TEXT.updated, <Time at={delivery.updatedAt} />],
        [TEXT.round, delivery.round > 1 ? delivery.round : undefined],
        [TEXT.trace, delivery.traceId && <code>{delivery.traceId}</code>],
      ]}
    />
  );
}

/** The attempts in order, with what was waited between them. */
function Attempts({ of: { attempts } }: { of: DeliveryDetails }): JSX.Element {
  return (
    <Panel title={TEXT.attempts}>
      {attempts.length === 0 ? (
        <Empty text={TEXT.noAttempts} />
      ) : (
        <ol class="timeline">
          {attempts.map((made, index) => {
            const { attempt, at, method, statusCode, durationMs, failureReason, answer, token } =
              made;
            const before = attempts[index - 1];
            const waited = before && Date.parse(at) - Date.parse(before.at) - before.durationMs;
            return (
              <li key={index} class={failureReason === undefined ? 'good' : 'bad'}>
                <div class="attempt">
                  <strong>{TEXT.attempt(attempt)}</strong>
                  <Pill tone={failureReason === undefined ? 'good' : 'bad'}>
                    {String(statusCode ?? TEXT.noAnswer)}
                  </Pill>
                  <span>
                    {failureReason === undefined ? TEXT.accepted : reasonText(failureReason)}
                  </span>
                  <span class="muted">
                    {method} · {duration(durationMs)} · <Time at={at} />
                    {waited !== undefined && waited > 0 && ` · ${TEXT.waited(duration(waited))}`}
                  </span>
                </div>
                {answer !== undefined && <pre tabIndex={0}>{answer}</pre>}
                {token !== undefined && <Claims token={token} />}
              </li>
            );
          })}
        </ol>
      )}
    </Panel>
  );
}

function Claims({ token }: { token: NonNullable<DeliveryAttempt['token']> }): JSX.Element {
  const { alg, kid, jti, txn, event, issuedAt, expiresAt } = token;
  return (
    <details>
      <summary>{TEXT.claims}</summary>
      <Facts
        facts={[
          ['alg', alg],
          ['kid', kid && <code>{kid}</code>],
          ['jti', <code>{jti}</code>],
          ['txn', <code>{txn}</code>],
          ['iat', <Time at={issuedAt} />],
          ['exp', <Time at={expiresAt} />],
          ['webhook.event', event],
        ]}
      />
    </details>
  );
}

/** The request as a command, with a variable for its token, which is not stored. A body that is shown in part is left out. */
async function curlOf(
  { url, origin, attempts, payloadDropped }: DeliveryDetails,
  path: string,
  mayView: boolean,
): Promise<{ text: string; message: string }> {
  const isShown = mayView && payloadDropped !== true;
  const payload = isShown ? await get<ConsolePayload>(`${path}/payload`) : undefined;
  const whole = payload?.truncated || payload?.redacted ? undefined : payload;
  const method = attempts.at(-1)?.method ?? 'POST';
  const parts = [
    method === 'HEAD' ? 'curl --head' : 'curl',
    quoted(url ?? origin ?? 'https://endpoint.example'),
    '-H "Authorization: Bearer $WEBHOOK_TOKEN"',
    ...(method === 'POST' && whole?.text !== undefined
      ? [`-H ${quoted(`Content-Type: ${whole.contentType}`)}`, `--data-raw ${quoted(whole.text)}`]
      : []),
  ];
  const isCut = method === 'POST' && whole?.text === undefined;
  const message = isCut ? TEXT.copiedWithoutBody : STRINGS.copied;
  return { text: parts.join(' \\\n  '), message };
}

/** What a terminal acts on: a body could so leave the text that is pasted, and run a command. */
const CONTROL = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/g;

/** For bash, zsh and, without control characters, each shell of POSIX. */
function quoted(text: string): string {
  if (text.search(CONTROL) < 0) return `'${text.replaceAll("'", `'\\''`)}'`;
  const escaped = text.replaceAll(/[\\']/g, '\\$&').replaceAll(CONTROL, (character) => {
    return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
  });
  return `$'${escaped}'`;
}
