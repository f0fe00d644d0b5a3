import { number, setFormats } from './format.js';
import { GERMAN } from './strings.de.js';

const deliveries = (count: number): string =>
  `${number(count)} ${count === 1 ? 'delivery' : 'deliveries'}`;

/** Every string that the page shows, in English until {@link setLanguage} is called. */
export const STRINGS = {
  skip: 'Skip to content',
  loading: 'Loading …',
  nav: {
    overview: 'Overview',
    deliveries: 'Deliveries',
    endpoints: 'Endpoints',
    'event-types': 'Events',
    inbox: 'Received',
    'dead-letters': 'Dead letters',
    activity: 'Activity',
  },
  navLabel: 'Sections',
  portalTenant: (tenant: string) => `Webhooks of ${tenant}`,
  signedInAs: (actor: string) => `Signed in as ${actor}`,
  signOut: 'Sign out',
  backTo: (place: string) => `← Back to ${place}`,
  linkNeeded:
    'This page needs a valid link. Links expire after a short time, so ask for a new one.',
  signInAgain: 'Your session has ended. Sign in again, then reload this page.',
  noAnswer: 'The server did not answer.',
  answered: (status: number) => `The server answered with ${status}.`,
  tookTooLong:
    'The server took too long to answer. An action may still be carried out: check before you repeat it.',
  failed: 'This part could not be loaded.',
  retryLoad: 'Try again',
  notFound: 'There is no such page.',
  cancel: 'Cancel',
  close: 'Close',
  copy: 'Copy',
  copied: 'Copied.',
  noClipboard: 'The browser allows copying at https: only. Select the text instead.',
  all: 'All',
  newest: 'Newest',
  older: 'Older',
  empty: 'Nothing matches.',
  select: (id: string) => `Select ${id}`,
  selectAll: 'Select all rows',
  selected: (count: number) => `${count} selected`,

  search: {
    label: 'Search',
    hint: (names: readonly string[]) => `Search, or filter by ${names[0]}:… ${names[1]}:…   (/)`,
    unknown: (word: string, names: readonly string[]) =>
      `There is no filter ${word}. Filters are ${names.join(', ')}; times are dates such as since:2026-01-31.`,
    time: 'Time',
    anyTime: 'Any time',
    ranges: { '1h': '1 h', '24h': '24 h', '7d': '7 d' },
    lastRanges: { '1h': 'the last hour', '24h': 'the last 24 hours', '7d': 'the last 7 days' },
    times: { since: 'Since', until: 'Until' },
    remove: 'Remove this filter',
    clear: 'Clear all filters',
  },

  /** Of columns, facts and filters on several pages. */
  labels: {
    event: 'Event',
    eventId: 'Event id',
    endpoint: 'Endpoint',
    tenant: 'Tenant',
    receiver: 'Receiver',
    status: 'Status',
    outcome: 'Outcome',
    runs: 'Runs',
    waiting: 'Waiting',
  },
  status: { pending: 'Waiting', delivered: 'Delivered', dead: 'Missed' },
  health: {
    disabled: 'Disabled',
    paused: 'Paused',
    failing: 'Failing',
    healthy: 'Healthy',
    idle: 'Idle',
  },
  disabledReason: {
    requested: 'on request',
    gone: 'the receiver answered 410 Gone',
    failing: 'every attempt failed for days',
  },
  /** A failure reason: the status of an answer. */
  answeredStatus: (status: string) => `answered ${status}`,
  /** By failure reason; see {@link reasonText}. */
  reasons: {
    timeout: 'no answer in time',
    dns: 'host name not found',
    connection_refused: 'connection refused',
    connection_reset: 'connection reset',
    tls: 'certificate not trusted',
    network: 'network failure',
    malformed_response: 'the answer is not HTTP',
    response_too_large: 'the answer is too large',
    destination_blocked: 'address not allowed',
    invalid_request: 'the request cannot be built',
    unknown_endpoint: 'endpoint unknown',
    endpoint_disabled: 'endpoint disabled',
    endpoint_paused: 'endpoint paused',
    circuit_open: 'waits: the endpoint is failing',
    endpoint_overloaded: 'waits: the endpoint asked for a pause',
    signing_failed: 'signing failed',
    no_signing_key: 'no valid key',
    credentials_unavailable: 'no access token',
    proxy_failed: 'the egress proxy failed',
    too_many_open_files: 'too many open files',
    aborted: 'interrupted by a shutdown',
    handler_failed: 'a handler failed',
    event_unhandled: 'no handler',
    process_died: 'the process died',
  },

  chart: {
    label: 'Deliveries over time',
    states: { delivered: 'delivered', pending: 'waiting', failed: 'missed' },
    highest: (count: number) => `highest: ${number(count)}`,
    now: 'Now',
    none: 'none',
    asTable: 'Show as a table',
    from: 'From',
    median: 'Median',
    p95: '95th percentile',
  },

  overview: {
    range: 'Time range',
    show: 'Show',
    fail: (count: number) => (count === 1 ? '1 endpoint fails.' : `${count} endpoints fail.`),
    of: (delivered: number, all: number) => `${number(delivered)} of ${number(all)}`,
    missedInAll: (count: number) => `${number(count)} in all`,
    late: (time: string) => `the oldest is ${time} late`,
    onTime: 'none is late',
    held: (count: number) => `${number(count)} wait for their key`,
    time: 'Time to delivery, p95',
    median: (time: string) => `median ${time}`,
    noTime: 'nothing was delivered',
    chart: {
      '1h': 'Deliveries per 2 minutes',
      '24h': 'Deliveries per 30 minutes',
      '7d': 'Deliveries per 4 hours',
    },
    quiet: 'No event was published in this time.',
    quietNext: 'Publish one, send a test event from an endpoint, or choose a longer time.',
    attention: 'Endpoints that need attention',
    allEndpoints: 'All endpoints',
    allFine: 'No endpoint needs attention.',
    missedCount: (count: number) => `${number(count)} missed`,
    waitingCount: (count: number) => `${number(count)} waiting`,
    kept: 'of those that are kept',
    refusedWhy: 'open one to see why',
    dropped: 'Not recorded',
    droppedWhy: 'too many arrived at once',
    deadLettersWhy: 'their handlers failed in every run',
  },

  deliveries: {
    one: (id: string) => `Delivery ${id}`,
    back: '← All deliveries',
    empty: 'No event has been published yet.',
    emptyNext: 'A delivery is listed as soon as an event is published to an endpoint.',
    id: 'Delivery id',
    attempts: 'Attempts',
    round: 'Round',
    created: 'Published',
    updated: 'Changed',
    next: 'Next attempt',
    reason: 'Reason',
    trace: 'Trace id',
    noAttempts: 'No attempt has been made yet.',
    attempt: (number: number) => `Attempt ${number}`,
    accepted: 'accepted',
    noAnswer: 'no answer',
    waited: (time: string) => `${time} after the one before`,
    claims: 'Claims of its token',
    copyCurl: 'Copy as curl',
    copiedWithoutBody: 'Copied without the body, which cannot be shown in full.',
    retryNow: 'Retry now',
    erase: (tenant: string) => `Erase endpoints and deliveries of ${tenant} …`,
    eraseVerb: 'Erase for good',
    eraseNothing: 'There is nothing to erase.',
    eraseAsk: (tenant: string, endpoints: number, count: number) =>
      `Permanently deleted: ${number(endpoints)} ${endpoints === 1 ? 'endpoint' : 'endpoints'}, and ${deliveries(count)} with payloads and attempts. Pending deliveries are not sent. Activity stays until it expires. Type ${tenant} to confirm.`,
    erased: (endpoints: number, count: number) =>
      `Erased: ${number(endpoints)} ${endpoints === 1 ? 'endpoint' : 'endpoints'}, ${deliveries(count)}.`,
    erasedPartly: 'Some deliveries are being attempted: erase again in a minute.',
    redeliver: 'Send again',
    redeliverSelected: 'Send selected again',
    redeliverAll: (status: 'dead' | 'delivered'): string =>
      status === 'dead' ? 'Send all missed of this list again …' : 'Send all of this list again …',
    redeliverCount: (count: number) => `Send ${deliveries(count)} again`,
    redeliverAsk: (count: number, more: boolean) =>
      more
        ? `${number(count)} deliveries are sent again now, and more match: repeat this for the rest.`
        : `${number(count)} ${count === 1 ? 'delivery is' : 'deliveries are'} sent again now.`,
    redeliverOf: (filter: string) => `Selected are: ${filter}.`,
    redeliverNothing: 'None of these can be sent again.',
    redeliverSkipped: (count: number) =>
      `${number(count)} are skipped: still waiting, or already sent again.`,
    redelivered: (count: number) => `${deliveries(count)} sent again.`,
    redeliverLeft: (count: number) =>
      `${number(count)} ${count === 1 ? 'is' : 'are'} left and still selected: send them again in a minute.`,
    deliveredMeanwhile: (count: number) =>
      `${deliveries(count)} ${count === 1 ? 'was' : 'were'} delivered in the meantime and not sent again.`,
    notRedelivered: (reason: string) => `It was not sent again: ${reason}.`,
  },

  keys: {
    title: 'Blocked keys',
    intro: 'Later deliveries of these keys wait until the missed one is sent again or skipped.',
    states: { waiting: 'Waits for its key', blocking: 'Blocks its key' },
    key: 'Ordering key',
    sequence: 'Sequence number',
    since: 'Since',
    actions: 'Actions',
    count: (count: number) =>
      count === 1 ? '1 key is blocked' : `${number(count)} keys are blocked`,
    waits: (key: string) => `It waits for an earlier delivery of the key ${key}.`,
    blocks: (key: string) =>
      `Later deliveries of the key ${key} wait until this one is sent again or skipped.`,
    showBlocker: 'Show the missed delivery',
    skip: 'Skip',
    skipTitle: 'Skip this delivery',
    skipAsk: (key: string) =>
      `It stays missed, and the later deliveries of the key ${key} are sent without it.`,
    skipped: (key: string) => `The deliveries of the key ${key} continue.`,
    notSkipped: (key: string) => `No delivery of the key ${key} waited for it.`,
  },

  recover: {
    label: 'Recover missed …',
    title: 'Recover missed deliveries',
    verb: 'Send them again',
    since: 'Missed within',
    ever: 'all time',
    counting: 'Counting …',
    preview: (count: number) =>
      count === 0 ? 'No delivery was missed in this time.' : `${deliveries(count)} to send again.`,
    note: 'They are sent in the background: you can leave this page.',
    started: 'The recovery has started.',
    progress: (sent: number, total: number) => `${number(sent)} of ${number(total)} sent again.`,
    skipped: (count: number) => `${number(count)} skipped, because their payload is gone.`,
    startedBy: (actor: string | undefined) =>
      actor === undefined ? 'Started' : `Started by ${actor}`,
    cancel: 'Cancel recovery',
    cancelAsk: 'What was not sent again yet stays missed.',
    cancelled: 'The recovery is cancelled.',
  },

  payload: {
    title: 'Payload',
    show: 'Show payload',
    dropped: 'The payload is no longer stored, so the delivery cannot be sent again.',
    facts: (type: string, size: string) => `${type}, ${size}`,
    truncated: 'Only the beginning is shown.',
    redacted: 'Parts were removed by the application.',
    binary: 'Binary data, in base64:',
  },

  endpoints: {
    back: '← All endpoints',
    empty: 'There is no endpoint yet.',
    emptyAdd: 'Add the URL that shall receive events.',
    emptyConfigure: 'Endpoints are added in the configuration, or by your provider.',
    id: 'Id',
    url: 'URL',
    events: 'Events',
    everyEvent: 'Every event, also those that are added later',
    names: 'Names and patterns',
    otherNames: 'Other names and patterns',
    eventsHint: 'Separated by commas. order.* matches order.paid.',
    noEvents: 'Choose at least one event.',
    filterHint: 'Optional: only events with this content, as JSON. {"data":{"total":{"$gte":100}}}',
    noJson: 'The filter is not valid JSON.',
    matches: (event: string) => `The example of ${event} matches.`,
    matchesNot: (event: string) => `The example of ${event} does not match.`,
    attempts: 'Attempts of a delivery',
    attemptsHint: 'Empty: as the publisher is configured.',
    onDead: {
      '': 'As the publisher is configured',
      skip: 'Later ones of its key are sent',
      block: 'Later ones of its key wait',
    },
    limits: 'Limits',
    limitsAndCredentials: 'Limits and credentials',
    concurrency: 'Attempts at the same time',
    perSecond: 'Attempts a second',
    burst: 'At once after a rest',
    unlimited: 'Empty: no limit of its own.',
    rateLimitOf: ({ perSecond, burst }: { perSecond: number; burst?: number }) =>
      `${number(perSecond)} a second${burst === undefined ? '' : `, ${number(burst)} at once`}`,
    credentials: 'Credentials',
    credentialsOf: 'Besides the signature, requests have',
    credentialsSet: (kinds: readonly string[]) =>
      `Set: ${kinds.join(', ')}. They cannot be shown; new ones replace all of them.`,
    credentialsKeep: 'what is set',
    credentialsNone: 'nothing else',
    credentialsRemove: 'nothing else: remove what is set',
    credentialKinds: {
      headers: 'secret headers',
      oauth2: 'an OAuth 2 access token',
      certificate: 'a client certificate',
    },
    secretHeaders: 'Headers',
    secretHeadersHint: 'One a line: X-Api-Key: …',
    noSecretHeader: 'Write each header with its name and its value, such as X-Api-Key: …',
    oauth2: {
      tokenUrl: 'Token endpoint',
      clientId: 'Client id',
      clientSecret: 'Client secret',
      scope: 'Scope (optional)',
      header: 'Header with the token (default: Authorization)',
    },
    certificate: { cert: 'Certificate', key: 'Private key' },
    acknowledged: 'Acknowledged format',
    lastTime: 'last',
    settings: {
      filter: 'Filter',
      profile: 'Format',
      retry: 'Retries',
      timeout: 'Time limit',
      onDead: 'After a missed delivery',
      rateLimit: 'Rate limit',
      concurrency: 'Concurrency',
      method: 'Method',
      headers: 'Headers',
    },
    description: 'Name',
    health: 'Health',
    successRate: 'Delivered, 24 h',
    rate: (share: string) => `${share} delivered in 24 h`,
    since: (time: string) => `since ${time}`,
    nextTry: (time: string) => `next attempt ${time}`,
    noAttempt: 'no attempt yet',
    lastSuccess: 'Last success',
    counts: 'Deliveries',
    countsOf: ({ pending, delivered, dead }: Record<'pending' | 'delivered' | 'dead', number>) =>
      `${number(delivered)} delivered, ${number(pending)} waiting, ${number(dead)} missed`,
    keys: 'Keys',
    keyFrom: (kid: string, time: string, state: 'signing' | 'next' | 'retired') =>
      ({
        signing: `${kid}, signs since ${time}`,
        next: `${kid}, signs from ${time}`,
        retired: `${kid}, no longer signs`,
      })[state],
    source: 'Defined in',
    sources: { options: 'the configuration', store: 'the endpoint store' },
    created: 'Created',
    chart: 'Deliveries, last 24 hours',
    quiet: 'No event was sent to this endpoint in the last 24 hours.',
    add: 'Add endpoint',
    edit: 'Edit',
    editTitle: 'Edit endpoint',
    save: 'Save',
    saved: 'Endpoint saved.',
    done: {
      enable: 'Endpoint enabled.',
      disable: 'Endpoint disabled.',
      pause: 'Endpoint paused.',
      resume: 'Endpoint resumed.',
    },
    test: 'Send test event',
    testDelivered: (status: number | undefined, time: string) =>
      `The receiver acknowledged the test event with ${status} after ${time}.`,
    testFailed: (reason: string, time: string) => `The test event failed after ${time}: ${reason}.`,
    enable: 'Enable',
    disable: 'Disable',
    disableAsk:
      'No event is recorded for this endpoint until it is enabled again, and its waiting deliveries are given up. Pause it instead if they should wait.',
    pause: 'Pause',
    pauseAsk:
      'Events are still recorded for this endpoint, and nothing is sent until it is resumed. Its deliveries wait.',
    resume: 'Resume',
    resumeAsk: 'The deliveries that wait are sent now.',
    rotate: 'Rotate key',
    rotateAsk: 'A new secret is made. The receiver must accept it before the old one ends.',
    overlap: 'Keep the old key for',
    overlaps: { '24h': '24 hours', '1h': '1 hour', '0s': 'no time: it leaked' },
    share: 'Portal link',
    shareAsk: (tenant: string) => `Anyone with the link sees the webhooks of ${tenant}.`,
    shareVerb: 'Create link',
    shareFor: 'It can be opened for',
    shareTimes: { '15m': '15 minutes', '1h': '1 hour', '24h': '24 hours' },
    shareMay: 'Besides viewing, the partner may',
    shareCapabilities: {
      'view-payload': 'see payloads',
      redeliver: 'send again',
      'manage-endpoints': 'manage endpoints',
      'manage-secrets': 'rotate keys and set credentials',
    },
    shareNote: 'Send it to the partner only: it is a credential.',
    remove: 'Delete',
    removeTitle: 'Delete endpoint',
    removeAsk: (id: string) =>
      `The endpoint and its keys are deleted for good. Type ${id} to confirm.`,
    removed: 'Endpoint deleted.',
    secretTitle: 'Secret',
    secretAsk: 'Give this secret to the receiver now. It cannot be shown again.',
    secretDone: 'I have stored it',
    deliveries: 'All deliveries',
  },

  eventTypes: {
    intro: 'The events that are published here. An endpoint receives those that it subscribes to.',
    deprecated: 'Deprecated',
    version: (version: string) => `version ${version}`,
    example: 'Example',
    schema: 'JSON Schema of its data',
    noExample: 'This event has no example.',
    send: 'Send this example …',
    sendTitle: 'Send an example',
    sendAsk: (event: string) =>
      `The example is sent as a real event ${event}: the receiver acts on it.`,
    sendVerb: 'Send it',
    to: 'To',
    noEndpoint: 'There is no endpoint to send it to: add one first.',
    sent: (event: string, id: string) => `${id} has acknowledged the example of ${event}.`,
  },

  inbox: {
    title: 'Received requests',
    one: (id: string) => `Request ${id}`,
    back: '← All requests',
    empty: 'No request has been received yet.',
    emptyNext: 'Requests to your receivers are listed here, refused ones with the reason.',
    kind: 'Kind',
    kinds: { accepted: 'Accepted', refused: 'Refused' },
    outcomes: {
      handled: 'Handled',
      queued: 'Queued',
      duplicate: 'Duplicate',
      unhandled: 'Unhandled',
      failed: 'Failed',
      dead: 'Dead letter',
      refused: 'Refused',
    },
    code: 'Code',
    at: 'Received',
    request: 'Request',
    issuer: 'Issuer',
    claimed: (value: string) => `${value} (claimed, not verified)`,
    kid: 'Key',
    size: 'Size',
    headers: 'Headers',
    explanation: 'Why it was refused',
    step: 'Check',
    result: 'Result',
    finding: 'Finding',
    results: { passed: 'passed', failed: 'failed', skipped: 'not reached' },
    hints: 'Hints',
    retry: 'Run handlers again',
    retried: 'The event runs again.',
  },

  deadLetters: {
    title: 'Dead letters',
    one: 'Dead letter',
    back: '← All dead letters',
    intro: 'Events that were acknowledged, and whose handlers failed in every run.',
    empty: 'There is no dead letter: every event that was acknowledged was handled.',
    reason: 'Last failure',
    died: 'Given up',
    request: 'Show its request',
    retry: 'Run selected again',
    retried: (count: number) => `${count} ${count === 1 ? 'event runs' : 'events run'} again.`,
    runsTitle: 'Runs of its handlers',
    noRuns: 'No run is stored.',
    run: (number: number) => `Run ${number}`,
  },

  activity: {
    intro: 'What users did, and what happened to endpoints.',
    introPortal: 'What was done here, and what happened to your endpoints.',
    empty: 'No action has been taken yet.',
    at: 'When',
    action: 'Action',
    actor: 'By',
    by: { operator: 'an operator', partner: 'a partner', system: 'automatically' },
    target: 'On',
    affected: (count: number) => `${number(count)} affected`,
    outcomes: { done: 'done', failed: 'failed', running: 'running', cancelled: 'cancelled' },
    actions: {
      'payload.view': 'Payload viewed',
      'delivery.redeliver': 'Deliveries sent again',
      'delivery.skip': 'Delivery skipped',
      'inbox.retry': 'Handlers run again',
      'endpoint.create': 'Endpoint added',
      'endpoint.update': 'Endpoint changed',
      'endpoint.delete': 'Endpoint deleted',
      'endpoint.enable': 'Endpoint enabled',
      'endpoint.disable': 'Endpoint disabled',
      'endpoint.pause': 'Endpoint paused',
      'endpoint.resume': 'Endpoint resumed',
      'endpoint.test': 'Test event sent',
      'endpoint.rotate-key': 'Key rotated',
      'endpoint.recover': 'Recovery of missed deliveries',
      'endpoint.failing': 'Endpoint failing',
      'queue.lagging': 'Deliveries late',
      'session.start': 'Signed in',
      'tenant.erase': 'Tenant erased',
      'tenant.link': 'Portal link created',
    },
  },
};

export type Messages = typeof STRINGS;

const TRANSLATIONS: Readonly<Record<string, Messages>> = { de: GERMAN };

/** Sets the language of the page; strings stay English if there is no translation. Call it before the page is rendered. */
export function setLanguage(tag: string): void {
  const language = TRANSLATIONS[tag] === undefined ? tag.split('-')[0]! : tag;
  const translation = TRANSLATIONS[language];
  if (translation !== undefined) replace(STRINGS, translation);
  const isTranslated = translation !== undefined || language === 'en';
  document.documentElement.lang = isTranslated ? tag : 'en';
  setFormats(isTranslated ? tag : 'en');
}

/** Sections are changed in place, because modules refer to theirs. */
function replace(target: object, source: object): void {
  for (const [name, value] of Object.entries(source) as [keyof typeof target, object][]) {
    if (typeof value === 'object') replace(target[name], value);
    else Object.assign(target, { [name]: value });
  }
}

/** A failure reason in words: `http_503` and `timeout` are codes. */
export function reasonText(code = ''): string {
  const status = /^http_(\d+)$/.exec(code)?.[1];
  if (status !== undefined) return STRINGS.answeredStatus(status);
  return (STRINGS.reasons as Readonly<Record<string, string>>)[code] ?? code;
}
