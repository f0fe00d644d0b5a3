import { render, type JSX } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ConsoleOverview, ConsoleSession } from '../console-api.js';
import { Activity } from './activity.js';
import { act, get, type ApiError } from './api.js';
import { messageOf, setBrandName, Title, toast, Toasts } from './components.js';
import { DeadLetter, DeadLetters } from './dead-letters.js';
import { Deliveries } from './deliveries.js';
import { Delivery } from './delivery.js';
import { Endpoint } from './endpoint.js';
import { ShownValues } from './endpoint-form.js';
import { Endpoints } from './endpoints.js';
import { EventTypes } from './event-types.js';
import { number, setClock } from './format.js';
import { Icon } from './icons.js';
import { Inbox, InboxEntry } from './inbox.js';
import { startLive, useLoaded, type Loaded } from './live.js';
import { Overview } from './overview.js';
import { linkTo, useRoute, type ViewProps } from './route.js';
import { setLanguage, STRINGS } from './strings.js';

type Section = keyof typeof STRINGS.nav;

declare const PACKAGE_VERSION: string;

/** In a frame, the application around it has its own name, account and links. */
const IS_FRAMED = window.parent !== window;

const FIRST: Section = 'overview';

function sectionsOf({ features, kind }: ConsoleSession): Section[] {
  const has: Record<Section, boolean> = {
    overview: true,
    deliveries: features.deliveries,
    endpoints: features.endpoints,
    'event-types': features.eventTypes,
    inbox: features.inbox && kind === 'console',
    'dead-letters': features.deadLetters && kind === 'console',
    activity: true,
  };
  return (Object.keys(has) as Section[]).filter((section) => has[section]);
}

function App(): JSX.Element {
  const [session, setSession] = useState<ConsoleSession>();
  const [error, setError] = useState<ApiError>();
  useEffect(() => {
    const open = async (): Promise<void> => {
      const opened = await openSession();
      setClock(opened.now);
      setLanguage(opened.language);
      setSession(opened);
    };
    open().catch(setError);
    // A link that is opened in the tab of this page changes only the fragment.
    const onHashChange = (): void => {
      if (linkToken() !== undefined) location.reload();
    };
    addEventListener('hashchange', onHashChange);
    return () => removeEventListener('hashchange', onHashChange);
  }, []);
  if (error !== undefined) {
    return (
      <main class="alone">
        <div class="notice bad" role="alert">
          <p>{error.message}</p>
          {error.status === 401 && error.code !== undefined && <p>{STRINGS.linkNeeded}</p>}
        </div>
      </main>
    );
  }
  return session === undefined ? (
    <p class="alone">{STRINGS.loading}</p>
  ) : (
    <Console session={session} />
  );
}

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
  const { brand, tenant, displayName = tenant ?? brand.name, returnUrl } = session;
  const name = session.kind === 'portal' ? STRINGS.portalTenant(displayName) : brand.name;
  useEffect(() => {
    startLive();
    setBrandName(brand.name);
    document.documentElement.classList.toggle('framed', IS_FRAMED);
    if (brand.color !== undefined) {
      const { style } = document.documentElement;
      style.setProperty('--brand', brand.color);
      style.setProperty('--on-brand', isLight(brand.color) ? '#10151c' : '#fff');
    }
  }, []);
  const topics = ['deliveries', 'inbox', 'endpoints'] as const;
  const overview = useLoaded<ConsoleOverview>('overview', topics, { tenant });
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
      <div class="side">
        {returnUrl !== undefined && (
          <a class="return" href={returnUrl} target="_top">
            {STRINGS.backTo(new URL(returnUrl).host)}
          </a>
        )}
        <header>
          {brand.logo !== undefined && <img src={brand.logo} alt="" />}
          <strong>{name}</strong>
        </header>
        <Navigation session={session} route={route} overview={overview.data} />
        <footer>
          <Account session={session} />
          <small>nestjs-webhook-token {PACKAGE_VERSION}</small>
        </footer>
      </div>
      <main id="content" tabIndex={-1}>
        <View
          session={session}
          route={route}
          overview={overview}
          key={`${route.page}/${route.id ?? ''}`}
        />
      </main>
      <ShownValues />
      <Toasts />
    </>
  );
}

function Navigation({
  session,
  route,
  overview,
}: ViewProps & { overview: ConsoleOverview | undefined }): JSX.Element {
  const failing = overview?.attention?.filter(({ health }) => health.state === 'failing').length;
  const counts: Partial<Record<Section, { count: number; name: string }>> = {
    deliveries: { count: overview?.deliveries?.dead ?? 0, name: STRINGS.status.dead },
    endpoints: { count: failing ?? 0, name: STRINGS.health.failing },
    'dead-letters': { count: overview?.deadLetters ?? 0, name: STRINGS.deadLetters.title },
  };
  return (
    <nav aria-label={STRINGS.navLabel}>
      {sectionsOf(session).map((section) => {
        const { count = 0, name = '' } = counts[section] ?? {};
        return (
          <a
            key={section}
            href={linkTo(section)}
            aria-current={section === (route.page || FIRST) ? 'page' : undefined}
          >
            <Icon name={section} />
            <span>{STRINGS.nav[section]}</span>
            {count > 0 && (
              <span class="count" title={`${number(count)} ${name}`} aria-hidden="true">
                {count > 9_999 ? `${number(9_999)}+` : number(count)}
              </span>
            )}
          </a>
        );
      })}
    </nav>
  );
}

function Account({ session: { actor, kind } }: { session: ConsoleSession }): JSX.Element {
  if (kind === 'console') return <>{actor !== undefined && STRINGS.signedInAs(actor)}</>;
  const signOut = (): void =>
    void act('DELETE', 'session').then(
      () => location.reload(),
      (error: unknown) => toast(messageOf(error), 'bad'),
    );
  return (
    <button type="button" class="quiet small" onClick={signOut}>
      {STRINGS.signOut}
    </button>
  );
}

/** Whether dark text is easier to read on a colour than white text. */
function isLight(color: string): boolean {
  const digits = color.length === 4 ? color.replace(/[\da-f]/gi, '$&$&') : color;
  const [r, g, b] = [1, 3, 5].map((start) => {
    const part = parseInt(digits.slice(start, start + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  // Where the contrast to white and to black is equal.
  return 0.2126 * r! + 0.7152 * g! + 0.0722 * b! > 0.179;
}

/** A link to a fragment would change the route. */
function skipToContent(event: Event): void {
  event.preventDefault();
  focusMain();
}

function focusMain(): void {
  document.querySelector('main')?.focus();
}

interface SectionView {
  readonly All: (props: ViewProps & { overview: Loaded<ConsoleOverview> }) => JSX.Element;
  /** One entry of its list. */
  readonly One?: (props: ViewProps & { id: string }) => JSX.Element;
}

const VIEWS: Readonly<Record<Section, SectionView>> = {
  overview: { All: Overview },
  deliveries: { All: Deliveries, One: Delivery },
  endpoints: { All: Endpoints, One: Endpoint },
  'event-types': { All: EventTypes },
  inbox: { All: Inbox, One: InboxEntry },
  'dead-letters': { All: DeadLetters, One: DeadLetter },
  activity: { All: Activity },
};

function View(props: ViewProps & { overview: Loaded<ConsoleOverview> }): JSX.Element {
  const { page, id } = props.route;
  const section = page || FIRST;
  if (!Object.hasOwn(VIEWS, section)) return <Title text={STRINGS.notFound} />;
  const { All, One } = VIEWS[section as Section];
  return id === undefined || One === undefined ? <All {...props} /> : <One {...props} id={id} />;
}

render(<App />, document.getElementById('app')!);
