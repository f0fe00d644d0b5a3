import {
  WEBHOOK_ANSWERS,
  type WebhookAnswerRow,
  type WebhookSituation,
} from '../request/webhook-answers.js';
import {
  addComponents,
  addScheme,
  type DocumentPart,
  type OpenApiDocument,
  TOKEN_REQUIRED,
} from './event-docs.js';

const ROWS = Object.entries(WEBHOOK_ANSWERS) as [WebhookSituation, WebhookAnswerRow][];

/** The table's rows by status, without the successes. */
const REFUSALS = new Map<number, WebhookAnswerRow[]>();
for (const [, row] of ROWS.filter(([, { status }]) => status >= 400)) {
  REFUSALS.set(row.status, [...(REFUSALS.get(row.status) ?? []), row]);
}

const PROBLEM = {
  type: 'object',
  description: 'Why the request was refused, as RFC 9457.',
  required: ['type', 'title', 'status', 'detail'],
  properties: {
    type: { type: 'string' },
    title: { type: 'string' },
    status: { type: 'integer' },
    detail: { type: 'string' },
    code: {
      type: 'string',
      description: 'Stable; absent if the application refused the request.',
      enum: [...new Set(ROWS.flatMap(([, { code }]) => code ?? []))],
    },
    errors: {
      type: 'array',
      items: { type: 'string' },
      description: 'One message for each failed constraint of the data.',
    },
  },
};

/** Adds the components that the operations of receivers refer to. */
export function addReceiverComponents(document: OpenApiDocument): void {
  addScheme(document);
  addComponents(document, 'schemas', { WebhookProblem: PROBLEM });
  const answers = [...REFUSALS].flatMap(([status, rows]) => [
    [`WebhookAnswer${status}`, refusal(rows, true)],
    [`WebhookHeadAnswer${status}`, refusal(rows, false)],
  ]);
  addComponents(document, 'responses', Object.fromEntries(answers) as DocumentPart);
}

/**
 * The operations of a receiver's own path.
 *
 * @param id - begins their ids
 * @param isQueued - whether events are acknowledged before they are handled
 * @param takesTokens - whether it takes tokens, without which there is no HEAD
 */
export function receiverOperations(
  id: string,
  isQueued: boolean,
  takesTokens: boolean,
): DocumentPart {
  const post = { tags: ['Webhooks'], operationId: `${id}_post`, summary: 'Receives an event' };
  const head = {
    tags: ['Webhooks'],
    operationId: `${id}_head`,
    summary: 'Receives an event whose data is in the token',
  };
  return {
    post: documented(post, 'post', { isQueued, takesTokens }),
    ...(takesTokens && { head: documented(head, 'head', { isQueued, takesTokens }) }),
  };
}

/** An operation of a receiver, with what the document says already. */
export function documented(
  operation: DocumentPart,
  method: string,
  { isQueued = false, takesTokens }: { readonly isQueued?: boolean; readonly takesTokens: boolean },
): DocumentPart {
  const isPost = method === 'post';
  const known = Object.entries((operation['responses'] ?? {}) as Record<string, DocumentPart>);
  const described = known.filter(([, { description }]) => description !== '');
  return {
    ...(isPost && { requestBody: takesTokens ? BODY : SENDER_BODY }),
    ...(takesTokens && { security: TOKEN_REQUIRED }),
    ...operation,
    responses: { ...answers(isQueued, isPost), ...Object.fromEntries(described) },
  };
}

const BODY = {
  description: "The event's data. The token has a digest of the exact bytes.",
  content: { 'application/json': { schema: {} } },
};

const SENDER_BODY = {
  description: 'The event, in the form of its sender.',
  content: { '*/*': { schema: {} } },
};

function answers(isQueued: boolean, isPost: boolean): DocumentPart {
  const name = isPost ? 'WebhookAnswer' : 'WebhookHeadAnswer';
  const refusals = [...REFUSALS.keys()].map((status) => [
    String(status),
    { $ref: `#/components/responses/${name}${status}` },
  ]);
  const { processed, queued, duplicate } = WEBHOOK_ANSWERS;
  return {
    ...(isQueued && { [queued.status]: { description: queued.title } }),
    [processed.status]: {
      description: `${processed.title}. ${duplicate.title}: with the header \`Webhook-Duplicate\`.`,
      headers: { 'Webhook-Duplicate': { schema: { type: 'string', const: 'true' } } },
    },
    ...(Object.fromEntries(refusals) as DocumentPart),
  };
}

/** The answer of the rows that share a status. */
function refusal(rows: readonly WebhookAnswerRow[], hasBody: boolean): DocumentPart {
  const lines = rows.map(({ code, title }) =>
    code === undefined ? `- ${title}` : `- \`${code}\`: ${title}`,
  );
  const codes = [...new Set(rows.flatMap(({ code }) => code ?? []))];
  const names = new Set(rows.flatMap(({ headers = {} }) => Object.keys(headers)));
  if (rows.some(({ challenge }) => challenge !== undefined)) names.add('WWW-Authenticate');
  const headers = [...names].map((name) => [name, { schema: { type: 'string' } }]);
  return {
    description: lines.join('\n'),
    headers: {
      'Webhook-Error': {
        description: 'The stable code.',
        schema: { type: 'string', enum: codes },
      },
      ...(Object.fromEntries(headers) as DocumentPart),
    },
    ...(hasBody && {
      content: {
        'application/problem+json': { schema: { $ref: '#/components/schemas/WebhookProblem' } },
      },
    }),
  };
}
