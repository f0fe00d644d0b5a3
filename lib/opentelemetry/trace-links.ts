import {
  type Context,
  context,
  createContextKey,
  isSpanContextValid,
  propagation,
  ROOT_CONTEXT,
  type SpanContext,
  trace,
} from '@opentelemetry/api';
import type { TraceContext } from '../diagnostics/operation.js';

/** The key of `suppressTracing` in `@opentelemetry/core`, which is not needed for anything else. */
const SUPPRESS_TRACING = createContextKey('OpenTelemetry SDK Context Key SUPPRESS_TRACING');

/** The valid span of a context, if there is one. */
export function spanContextOf(from: Context): SpanContext | undefined {
  const found = trace.getSpanContext(from);
  return found !== undefined && isSpanContextValid(found) ? found : undefined;
}

/**
 * Writes a context as W3C headers. Baggage is left out: it may hold personal data, and receivers belong to others.
 *
 * @returns `undefined` if there is no span, or another propagator than W3C Trace Context
 */
export function inject(from: Context): TraceContext | undefined {
  const carrier: Partial<Record<string, string>> = {};
  propagation.inject(from, carrier);
  const { traceparent, tracestate } = carrier;
  if (traceparent === undefined) return undefined;
  return { traceparent, tracestate };
}

/** Adds the span of a stored or received trace context to a context; an invalid one changes nothing. */
export function extract({ traceparent, tracestate }: TraceContext, into: Context): Context {
  return propagation.extract(into, { traceparent, tracestate });
}

/** Where a span that follows another one, maybe much later, belongs. */
interface Continuation {
  readonly parent: Context;
  readonly links: { readonly context: SpanContext }[];
}

/**
 * Links a span to the one that caused it. Within the time it also joins the trace: as a sibling, if the parent of the cause is known,
 * or else as a child.
 *
 * @param age - milliseconds since the cause
 * @param joinFor - milliseconds
 */
export function follow(
  cause: TraceContext | undefined,
  age: number,
  joinFor: number,
): Continuation {
  const caused = cause === undefined ? ROOT_CONTEXT : extract(cause, ROOT_CONTEXT);
  const linked = spanContextOf(caused);
  if (linked === undefined) return { parent: ROOT_CONTEXT, links: [] };
  const links = [{ context: linked }];
  if (age >= joinFor) return { parent: ROOT_CONTEXT, links };
  const { parentId: spanId = linked.spanId } = cause!;
  return { parent: trace.setSpanContext(ROOT_CONTEXT, { ...linked, spanId }), links };
}

/** A trace of its own, linked to the span of a context, if it has one. */
export function rootLinkedTo(from: Context): Continuation {
  const linked = spanContextOf(from);
  if (linked === undefined) return { parent: from, links: [] };
  return { parent: trace.deleteSpan(from), links: [{ context: linked }] };
}

/** Runs work without further spans: the span of an attempt already stands for its HTTP request. */
export function withoutSpans<T>(from: Context, work: () => T): T {
  return context.with(from.setValue(SUPPRESS_TRACING, true), work);
}
