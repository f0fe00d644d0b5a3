import { withoutTokens } from '../token/decoding.js';
import { isObject, parseJson } from '../token/json.js';
import type { CallAnswer } from './http-call.js';

/** What an application says about a request that it did not acknowledge. */
export interface ApplicationAnswer {
  /** Of the answer table, or of the application's own error. */
  readonly code: string | undefined;
  readonly detail: string | undefined;
}

/** Reads the code and the message of an answer; a body of another form is shown as it is. */
export function readApplicationAnswer({ headers, body }: CallAnswer): ApplicationAnswer {
  const text = body.toString().trim();
  const parsed = parseJson(text);
  // The members of a problem detail (RFC 9457), and of an exception of Nest.
  const { code: own, detail: problem, message, errors } = isObject(parsed) ? parsed : {};
  const code = [headers['webhook-error']].flat()[0] ?? own;
  const description = /error_description="([^"]*)"/.exec(headers['www-authenticate'] ?? '')?.[1];
  const what = [problem ?? message].flat().map(textOf).filter(isPresent).join('; ');
  const causes = Array.isArray(errors) ? errors.map(textOf).join('; ') : '';
  const known = [what, causes].filter(isPresent).join(': ');
  const detail = [known, description, text].find(isPresent);
  return {
    code: typeof code === 'string' ? printable(code) : undefined,
    detail: detail && printable(detail),
  };
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

function isPresent(text: string | undefined): text is string {
  return text !== undefined && text !== '';
}

/** Without control characters, line separators and tokens, which an application may echo. */
function printable(text: string): string {
  return withoutTokens(text.replace(/[\p{Cc}\p{Zl}\p{Zp}]+/gu, ' ')).slice(0, 500);
}
