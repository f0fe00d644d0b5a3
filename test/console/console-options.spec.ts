import { describe, expect, it } from '@jest/globals';
import { resolveConsole } from '../../lib/console/console-options.js';

/** The problems of options as `path: message`. */
function problemsOf(options: unknown): string[] {
  try {
    resolveConsole(options as never);
    return [];
  } catch (error) {
    const { code, problems } = error as { code: string; problems: Record<string, string>[] };
    expect(code).toBe('invalid_configuration');
    return problems.map(({ path, message }) => `${path}: ${message}`);
  }
}

describe('the options of WebhookConsoleModule', () => {
  it('must not be misspelt', () => {
    expect(problemsOf({ capabilitiess: 1 })).toEqual([
      'WebhookConsoleModule.capabilitiess: unknown option; did you mean "capabilities"?',
    ]);
  });

  it.each([null, 'text', 7, [], new Map()])('must be an object, not %p', (options) => {
    expect(problemsOf(options)).toEqual([
      expect.stringContaining('WebhookConsoleModule: must be an object'),
    ]);
  });

  it('name the value that a misspelt one probably means', () => {
    expect(problemsOf({ capabilities: ['veiw'] })).toEqual([
      "WebhookConsoleModule.capabilities[0]: must be 'view', 'view-payload', 'redeliver', 'manage-endpoints', 'manage-secrets', 'share' or 'erase'; did you mean 'view'?",
    ]);
  });

  it.each([
    ['127.0.0.2', true],
    ['[::1]', true],
    ['app.localhost', true],
    ['shop.example', false],
  ])('allow a portal at http://%s: %s', (host, isAllowed) => {
    const portal = { url: `http://${host}/portal`, secret: 'a-secret-of-the-portal-of-32-bytes' };

    expect(problemsOf({ portal })).toEqual(
      isAllowed ? [] : [expect.stringContaining('http: is allowed for this machine')],
    );
  });

  it.each([
    ['DE', 'de'],
    ['pt-br', 'pt-BR'],
  ])('read the language %s as %s, which the page looks up', (language, tag) => {
    expect(resolveConsole({ language }).language).toBe(tag);
  });

  it.each(['de-de-de', 'german', '', 7])('refuse the language %p', (language) => {
    expect(problemsOf({ language })).toEqual([
      "WebhookConsoleModule.language: must be a language tag, such as 'de' or 'pt-BR'",
    ]);
  });
});
