import { render, type JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ConsoleSession } from '../console-api.js';
import { act, get, type ApiError } from './api.js';
import { Deliveries, Delivery } from './deliveries.js';
import { Endpoint, Endpoints } from './endpoints.js';
import { DeadLetters } from './dead-letters.js';
import { Inbox, InboxEntry } from './inbox.js';
import { startLive } from './live.js';
import { Audit, Overview } from './overview.js';
import { linkTo, useRoute, type Route } from './route.js';
import { STRINGS } from './strings.js';

type Section = keyof typeof STRINGS.nav;

/** Set by the build. */
declare const PACKAGE_VERSION: string;

const FIRST: Section = 'overview';

/** The sections that this session has. */
function sectionsOf({ features, kind }: ConsoleSession): Section[] {
  const has: Record<Section, boolean> = {
    overview: true,
    deliveries: features.deliveries,
    endpoints: features.endpoints,
    inbox: features.inbox && kind === 'console',
    'dead-letters': features.deadLetters && kind === 'console',
    audit: features.audit && kind === 'console',
  };
  return (Object.keys(has) as Section[]).filter((section) => has[section]);
}

function App(): JSX.Element {
  const [session, setSession] = useState<ConsoleSession>();
  const [error, setError] = useState<ApiError>();
  useEffect(() => {
    openSession().then(setSession, setError);
    // A link that is opened in the tab of this page changes only the fragment.
    const onHashChange = (): void => {
      if (linkToken() !== undefined) location.reload();
    };
    addEventListener('hashchange', onHashChange);
    return () => removeEventListener('hashchange', onHashChange);
  }, []);
  if (error !== undefined) {
    return (
      <main>
        <div class="notice bad" role="alert">
          <p>{error.message}</p>
          {error.status === 401 && error.code !== undefined && <p>{STRINGS.linkNeeded}</p>}
        </div>
      </main>
    );
  }
  return session === undefined ? <p>{STRINGS.loading}</p> : <Console session={session} />;
}

/** The token of a link, in the fragment. */
function linkToken(): string | undefined {
  return /^#token=(.+)$/.exec(location.hash)?.[1];
}

/** Exchanges the token of a link for a session, or reads the session. */
async function openSession(): Promise<ConsoleSession> {
  const token = linkToken();
  if (token === undefined) return get<ConsoleSession>('session');
  // The token must not stay in the address bar or the history.
  history.replaceState(null, '', linkTo(FIRST));
  return act<ConsoleSession>('POST', 'session', { token });
}

function Console({ session }: { session: ConsoleSession }): JSX.Element {
  const route = useRoute();
  const { brand, tenant, actor, kind } = session;
  useEffect(() => {
    startLive();
    document.title = brand.name;
    if (brand.color !== undefined) {
      document.documentElement.style.setProperty('--brand', brand.color);
    }
  }, []);
  const wasShown = useRef(false);
  useEffect(() => {
    // On the first page, Tab must reach the link that skips the navigation.
    if (wasShown.current) focusMain();
    wasShown.current = true;
  }, [route.page, route.id]);
  return (
    <>
      <a class="skip" href="#content" onClick={skipToContent}>
        {STRINGS.skip}
      </a>
      <header>
        {brand.logo !== undefined && <img src={brand.logo} alt="" />}
        <strong>
          {kind === 'portal' ? STRINGS.portalTenant(tenant ?? brand.name) : brand.name}
        </strong>
        <nav aria-label={STRINGS.navLabel}>
          {sectionsOf(session).map((section) => (
            <a
              key={section}
              href={linkTo(section)}
              aria-current={section === (route.page || FIRST) ? 'page' : undefined}
            >
              {STRINGS.nav[section]}
            </a>
          ))}
        </nav>
        {actor !== undefined && <span>{STRINGS.signedInAs(actor)}</span>}
        {kind === 'portal' && (
          <button
            type="button"
            class="quiet"
            onClick={() => void act('DELETE', 'session').finally(() => location.reload())}
          >
            {STRINGS.signOut}
          </button>
        )}
      </header>
      <main id="content" tabIndex={-1}>
        <View session={session} route={route} key={`${route.page}/${route.id ?? ''}`} />
      </main>
      <footer>nestjs-webhook-token {PACKAGE_VERSION}</footer>
    </>
  );
}

/** A link to a fragment would change the route. */
function skipToContent(event: Event): void {
  event.preventDefault();
  focusMain();
}

function focusMain(): void {
  document.querySelector('main')?.focus();
}

function View({ session, route }: { session: ConsoleSession; route: Route }): JSX.Element {
  const { page, id } = route;
  switch ((page || FIRST) as Section) {
    case 'overview':
      return <Overview session={session} />;
    case 'deliveries':
      return id === undefined ? (
        <Deliveries session={session} route={route} />
      ) : (
        <Delivery session={session} id={id} />
      );
    case 'endpoints':
      return id === undefined ? (
        <Endpoints session={session} route={route} />
      ) : (
        <Endpoint session={session} id={id} />
      );
    case 'inbox':
      return id === undefined ? <Inbox route={route} /> : <InboxEntry session={session} id={id} />;
    case 'dead-letters':
      return <DeadLetters session={session} route={route} />;
    case 'audit':
      return <Audit />;
    default:
      return <p>{STRINGS.notFound}</p>;
  }
}

render(<App />, document.getElementById('app')!);
