import {
  type Attributes,
  type Context,
  context,
  diag,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
  type Tracer,
} from '@opentelemetry/api';
import type { AttemptingOperation, PublishingOperation } from '../deliveries/delivery.channels.js';
import type { Operation, OperationTracer, TraceContext } from '../diagnostics/operation.js';
import type { HandlingOperation, ReceivingOperation } from '../receiver/receiver.channels.js';
import { extract, follow, inject, spanContextOf, withoutSpans } from './trace-links.js';
import type { WebhookMetrics } from './webhook-metrics.js';

/** How traces are continued. */
interface TracingOptions {
  /** Milliseconds after a publish in which an attempt is part of its trace. */
  readonly joinTraceFor: number;
  /** Whether receivers continue the traces of senders. */
  readonly continueTraces: boolean;
}

/** The semantic conventions name no system for webhooks. */
const SYSTEM: Attributes = { 'messaging.system': 'webhook' };

/** Starts a span for each operation, and records its metrics when it ends. */
export class OperationTracers {
  constructor(
    private readonly tracer: Tracer,
    private readonly metrics: WebhookMetrics,
    private readonly options: TracingOptions,
  ) {}

  /** `PRODUCER`: the span that attempts are linked to. */
  publishing(operation: PublishingOperation): void {
    const { event, eventId, tenant } = operation.facts;
    const around = context.active();
    // Attempts become siblings of the publish, so it needs a parent.
    const root =
      spanContextOf(around) === undefined
        ? this.tracer.startSpan(`webhook ${event}`, { root: true }, around)
        : undefined;
    const parent = root === undefined ? around : trace.setSpan(around, root);
    const attributes = {
      ...SYSTEM,
      'messaging.operation.name': 'publish',
      'messaging.operation.type': 'create',
    };
    const span = this.tracer.startSpan(
      `publish ${event}`,
      {
        kind: SpanKind.PRODUCER,
        attributes: {
          ...attributes,
          'messaging.destination.name': event,
          'messaging.message.id': eventId,
          ...given('webhook.tenant', tenant),
        },
      },
      parent,
    );
    const own = trace.setSpan(parent, span);
    operation.tracer = new SpanTracer(span, own, siblings(own, parent), (outcome) => {
      const { deliveries, duplicate, error, durationMs } = outcome;
      span.setAttributes({ 'webhook.deliveries': deliveries, 'webhook.duplicate': duplicate });
      failed(span, error);
      root?.end();
      this.metrics.published(durationMs, event, { ...attributes, ...given('error.type', error) });
    });
  }

  /** `CLIENT`: one attempt, with all of its requests. */
  attempting(operation: AttemptingOperation): void {
    const { event, eventId, deliveryId, endpointId, tenant, origin, attempt, ageMs, cause, round } =
      operation.facts;
    // A later round was asked for long after the publish, and has a new creation time.
    const age = round === 1 ? ageMs : Infinity;
    const { parent, links } = follow(cause, age, this.options.joinTraceFor);
    const attributes = {
      ...SYSTEM,
      'messaging.operation.name': 'send',
      'messaging.operation.type': 'send',
    };
    const span = this.tracer.startSpan(
      `send ${event}`,
      {
        kind: SpanKind.CLIENT,
        links: [...links],
        attributes: {
          ...attributes,
          'messaging.destination.name': event,
          'messaging.message.id': eventId,
          'webhook.delivery.id': deliveryId,
          'webhook.attempt': attempt,
          ...(attempt > 1 && { 'http.request.resend_count': attempt - 1 }),
          ...given('webhook.endpoint.id', endpointId),
          ...given('webhook.tenant', tenant),
          ...serverOf(origin),
        },
      },
      parent,
    );
    const own = trace.setSpan(parent, span);
    operation.tracer = new SpanTracer(span, own, inject(own), (outcome) => {
      const { method, statusCode, reason, durationMs } = outcome;
      const http = {
        ...given('http.request.method', method),
        ...given('http.response.status_code', statusCode),
      };
      span.setAttributes({ ...http, 'webhook.outcome': outcome.outcome });
      failed(span, reason);
      this.metrics.attempted(durationMs, endpointId, {
        ...attributes,
        ...http,
        'webhook.outcome': outcome.outcome,
        ...given('error.type', reason),
      });
      if (outcome.outcome === 'acknowledged') this.metrics.delivered(ageMs + durationMs, event);
    });
  }

  /** `SERVER`, or `INTERNAL` inside the span of an instrumented HTTP server. It begins with the arrival of the request. */
  receiving(operation: ReceivingOperation): void {
    const {
      method,
      receiver,
      event,
      eventId,
      issuer,
      verificationMs,
      trace: sent,
    } = operation.facts;
    const around = context.active();
    const isInside = spanContextOf(around) !== undefined;
    const continued = sent === undefined || isInside ? around : extract(sent, around);
    const isLinkedOnly = continued !== around && !this.options.continueTraces;
    const linked = isLinkedOnly ? spanContextOf(continued) : undefined;
    const parent = isLinkedOnly ? around : continued;
    const startTime = Date.now() - (performance.now() - operation.startedAt);
    const span = this.tracer.startSpan(
      method,
      {
        kind: isInside ? SpanKind.INTERNAL : SpanKind.SERVER,
        startTime,
        links: linked === undefined ? [] : [{ context: linked }],
        attributes: {
          ...SYSTEM,
          'http.request.method': method,
          'webhook.verification.duration': verificationMs / 1_000,
          ...given('webhook.receiver', receiver),
          ...given('messaging.destination.name', event),
          ...given('messaging.message.id', eventId),
          ...given('webhook.issuer', issuer),
        },
      },
      parent,
    );
    const own = trace.setSpan(parent, span);
    const finish: Finish<ReceivingOperation> = (outcome) => {
      const { situation, code, status, route, unhandled, durationMs } = outcome;
      span.updateName(`${method} ${route}`);
      span.setAttributes({
        'http.route': route,
        'http.response.status_code': status,
        'webhook.situation': situation,
        'webhook.unhandled': unhandled,
      });
      if (status >= 500) failed(span, code ?? String(status));
      this.metrics.received(durationMs, verificationMs, {
        ...given('webhook.receiver', receiver),
        'webhook.situation': situation,
        'http.response.status_code': status,
        ...(status >= 500 && { 'error.type': code ?? String(status) }),
      });
    };
    operation.tracer = new SpanTracer(span, own, inject(own), finish, startTime);
  }

  /** `CONSUMER`: one run of one handler. */
  handling(operation: HandlingOperation): void {
    const { handler, receiver, event, eventId, issuer, run, queued } = operation.facts;
    const { parent, links } =
      queued === undefined
        ? { parent: context.active(), links: [] }
        : follow(queued.trace, queued.ageMs, this.options.joinTraceFor);
    const attributes = {
      ...SYSTEM,
      'messaging.operation.name': 'process',
      'messaging.operation.type': 'process',
      'webhook.receiver': receiver,
      'webhook.handler': handler,
    };
    const span = this.tracer.startSpan(
      `process ${event}`,
      {
        kind: SpanKind.CONSUMER,
        links: [...links],
        attributes: {
          ...attributes,
          'messaging.destination.name': event,
          'messaging.message.id': eventId,
          'webhook.issuer': issuer,
          'webhook.run': run,
        },
      },
      parent,
    );
    const own = trace.setSpan(parent, span);
    operation.tracer = new SpanTracer(span, own, inject(own), ({ error, durationMs }) => {
      failed(span, error);
      this.metrics.handled(durationMs, event, { ...attributes, ...given('error.type', error) });
    });
  }
}

type Finish<Observed> =
  Observed extends Operation<infer _Facts, infer Outcome> ? OperationTracer<Outcome>['end'] : never;

/** The span of an operation. Telemetry that fails must not change the operation. */
class SpanTracer<Outcome> implements OperationTracer<Outcome> {
  /** @param startTime - epoch milliseconds, for a span that began before this object was created */
  constructor(
    private readonly span: Span,
    private readonly own: Context,
    readonly trace: TraceContext | undefined,
    private readonly finish: OperationTracer<Outcome>['end'],
    private readonly startTime?: number,
  ) {}

  run<T>(work: () => T): T {
    return context.with(this.own, work);
  }

  send<T>(request: () => T): T {
    return withoutSpans(this.own, request);
  }

  end(outcome: Parameters<OperationTracer<Outcome>['end']>[0]): void {
    const { span, startTime } = this;
    try {
      this.finish(outcome);
      if (startTime === undefined) span.end();
      else span.end(startTime + outcome.durationMs);
    } catch (error) {
      diag.error('nestjs-webhook-token: a span could not be ended', error);
    }
  }
}

/** The trace to store with deliveries: attempts become siblings of the publish. */
function siblings(own: Context, parent: Context): TraceContext | undefined {
  const injected = inject(own);
  const parentId = spanContextOf(parent)?.spanId;
  return injected && parentId !== undefined ? { ...injected, parentId } : injected;
}

/** Without the error's message, which may quote a payload. */
function failed(span: Span, type: string | undefined): void {
  if (type === undefined) return;
  span.setAttribute('error.type', type);
  span.setStatus({ code: SpanStatusCode.ERROR });
}

function given(name: string, value: string | number | undefined): Attributes {
  return value === undefined ? {} : { [name]: value };
}

function serverOf(origin: string): Attributes {
  if (!URL.canParse(origin)) return {};
  const { protocol, hostname, port } = new URL(origin);
  const scheme = protocol.slice(0, -1);
  const defaultPort = scheme === 'https' ? 443 : 80;
  return {
    'url.scheme': scheme,
    'server.address': hostname,
    'server.port': port === '' ? defaultPort : Number(port),
  };
}
