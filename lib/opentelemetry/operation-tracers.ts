import {
  type Attributes,
  type Context,
  context,
  diag,
  type Link,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace,
  type Tracer,
} from '@opentelemetry/api';
import type { AttemptingOperation, PublishingOperation } from '../deliveries/delivery.channels.js';
import type { Operation, OperationTracer, TraceContext } from '../diagnostics/operation.js';
import { withoutBrackets } from '../egress/egress-policy.js';
import { defined } from '../options/defined.js';
import type { HandlingOperation, ReceivingOperation } from '../receiver/receiver.channels.js';
import {
  extract,
  follow,
  inject,
  rootLinkedTo,
  spanContextOf,
  withoutSpans,
} from './trace-links.js';
import type { WebhookMetrics } from './webhook-metrics.js';

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
    this.start(operation, {
      name: `publish ${event}`,
      kind: SpanKind.PRODUCER,
      parent,
      attributes: {
        ...attributes,
        'messaging.destination.name': event,
        'messaging.message.id': eventId,
        'webhook.tenant': tenant,
      },
      traceOf: (own) => siblings(own, parent),
      end: (span, { deliveries, duplicate, error, durationMs }) => {
        span.setAttributes({ 'webhook.deliveries': deliveries, 'webhook.duplicate': duplicate });
        failed(span, error);
        root?.end();
        this.metrics.published(durationMs, event, { ...attributes, 'error.type': error });
      },
    });
  }

  /** `CLIENT`: one attempt, with all of its requests. */
  attempting(operation: AttemptingOperation): void {
    const { event, eventId, deliveryId, endpointId, tenant, origin, attempt, ageMs, cause, round } =
      operation.facts;
    // A later round was asked for long after the publish, and has a new creation time.
    const age = round === 1 ? ageMs : Infinity;
    const attributes = {
      ...SYSTEM,
      'messaging.operation.name': 'send',
      'messaging.operation.type': 'send',
    };
    this.start(operation, {
      name: `send ${event}`,
      kind: SpanKind.CLIENT,
      ...follow(cause, age, this.options.joinTraceFor),
      attributes: {
        ...attributes,
        'messaging.destination.name': event,
        'messaging.message.id': eventId,
        'webhook.delivery.id': deliveryId,
        'webhook.attempt': attempt,
        'http.request.resend_count': attempt > 1 ? attempt - 1 : undefined,
        'webhook.endpoint.id': endpointId,
        'webhook.tenant': tenant,
        ...serverOf(origin),
      },
      end: (span, { outcome, method, statusCode, reason, durationMs }) => {
        const result = {
          'http.request.method': method,
          'http.response.status_code': statusCode,
          'webhook.outcome': outcome,
        };
        span.setAttributes(defined(result));
        failed(span, reason);
        const measured = { ...attributes, ...result, 'error.type': reason };
        this.metrics.attempted(durationMs, endpointId, measured);
        if (outcome === 'acknowledged') this.metrics.delivered(ageMs + durationMs, event);
      },
    });
  }

  /**
   * `SERVER`, or `INTERNAL` inside the span of an instrumented HTTP server, which continues every sender's trace before the request is
   * verified. It begins with the arrival of the request.
   */
  receiving(operation: ReceivingOperation): void {
    const { method, receiver, event, eventId, issuer, verificationMs } = operation.facts;
    const sent = operation.facts.trace;
    const around = context.active();
    const isInside = spanContextOf(around) !== undefined;
    const continued = sent === undefined || isInside ? around : extract(sent, around);
    this.start(operation, {
      name: method,
      kind: isInside ? SpanKind.INTERNAL : SpanKind.SERVER,
      ...(this.options.continueTraces ? { parent: continued } : rootLinkedTo(continued)),
      startTime: Date.now() - (performance.now() - operation.startedAt),
      attributes: {
        ...SYSTEM,
        'http.request.method': method,
        'webhook.verification.duration': verificationMs / 1_000,
        'webhook.receiver': receiver,
        'messaging.destination.name': event,
        'messaging.message.id': eventId,
        'webhook.issuer': issuer,
      },
      end: (span, { situation, code, status, route, unhandled, durationMs }) => {
        const error = status >= 500 ? (code ?? String(status)) : undefined;
        span.updateName(`${method} ${route}`);
        span.setAttributes({
          'http.route': route,
          'http.response.status_code': status,
          'webhook.situation': situation,
          'webhook.unhandled': unhandled,
        });
        failed(span, error);
        this.metrics.received(durationMs, verificationMs, {
          'webhook.receiver': receiver,
          'webhook.situation': situation,
          'http.response.status_code': status,
          'error.type': error,
        });
      },
    });
  }

  /** `CONSUMER`: one run of one handler. */
  handling(operation: HandlingOperation): void {
    const { handler, receiver, event, eventId, issuer, run, queued } = operation.facts;
    const attributes = {
      ...SYSTEM,
      'messaging.operation.name': 'process',
      'messaging.operation.type': 'process',
      'webhook.receiver': receiver,
      'webhook.handler': handler,
    };
    this.start(operation, {
      name: `process ${event}`,
      kind: SpanKind.CONSUMER,
      ...(queued === undefined
        ? { parent: context.active() }
        : follow(queued.trace, queued.ageMs, this.options.joinTraceFor)),
      attributes: {
        ...attributes,
        'messaging.destination.name': event,
        'messaging.message.id': eventId,
        'webhook.issuer': issuer,
        'webhook.run': run,
      },
      end: (span, { error, durationMs }) => {
        failed(span, error);
        this.metrics.handled(durationMs, event, { ...attributes, 'error.type': error });
      },
    });
  }

  private start<Outcome extends object>(
    operation: Operation<object, Outcome>,
    { name, parent, attributes, traceOf = inject, end, ...options }: OperationSpan<Outcome>,
  ): void {
    const span = this.tracer.startSpan(
      name,
      { ...options, attributes: defined(attributes) },
      parent,
    );
    const own = trace.setSpan(parent, span);
    operation.tracer = {
      trace: traceOf(own),
      run: (work) => context.with(own, work),
      send: (request) => withoutSpans(own, request),
      end: (outcome) => {
        // Telemetry that fails must not change the operation.
        try {
          end(span, outcome);
          const { startTime } = options;
          span.end(startTime === undefined ? undefined : startTime + outcome.durationMs);
        } catch (error) {
          diag.error('nestjs-webhook-token: a span could not be ended', error);
        }
      },
    };
  }
}

interface OperationSpan<Outcome> {
  readonly name: string;
  readonly kind: SpanKind;
  readonly parent: Context;
  readonly links?: Link[];
  /** Those that are `undefined` are left out. */
  readonly attributes: Attributes;
  /** Epoch milliseconds; default: now. */
  readonly startTime?: number;
  /** The trace to store or to send; default: the span. */
  readonly traceOf?: (own: Context) => TraceContext | undefined;
  /** Completes the span, and records its metrics. */
  readonly end: (span: Span, outcome: Parameters<OperationTracer<Outcome>['end']>[0]) => void;
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

function serverOf(origin: string): Attributes {
  if (!URL.canParse(origin)) return {};
  const { protocol, hostname, port } = new URL(origin);
  const scheme = protocol.slice(0, -1);
  const defaultPort = scheme === 'https' ? 443 : 80;
  return {
    'url.scheme': scheme,
    'server.address': withoutBrackets(hostname),
    'server.port': port === '' ? defaultPort : Number(port),
  };
}
