import { readFileSync } from 'node:fs';
import { describe, expect, it } from '@jest/globals';
import ts from 'typescript';

/** Names that an entry point exports, including types. */
function namesOf(entry: string): string[] {
  const file = new URL(`../../lib/${entry}`, import.meta.url).pathname;
  const program = ts.createProgram([file], {
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
    experimentalDecorators: true,
    skipLibCheck: true,
    types: ['node'],
  });
  const checker = program.getTypeChecker();
  const symbol = checker.getSymbolAtLocation(program.getSourceFile(file)!)!;
  return checker.getExportsOfModule(symbol).map(({ name }) => name);
}

const APPLICATION = `
  defineEvents InferEvents WebhookModule WebhookModuleOptions WebhookOptionsFactory OnWebhookEvent WebhookRoute
  WebhookContext WebhookData WebhookEvent WebhookGuard WebhookVerifier WebhookException
  WebhookInbox WebhookPublisher PublishResult SendResult SignedWebhookRequest
  WebhookErrorFilter WebhookEndpoints WebhookDeliveries WebhookJwks OnWebhookDelivery
  WebhookDeliveryEvents WebhookEventMap WebhookEventName WebhookEventData InProcessQueue
  MemoryReplayStore MemoryEndpointStore KeyProvider WebhookSigner
  compareReceipts WebhookError isWebhookError WebhookConfigurationError WebhookTokenError
  WebhookPayloadError WebhookReplayError WebhookStoreError WebhookDeliveryError
  WebhookDestinationBlockedError WebhookSigningError
`
  .trim()
  .split(/\s+/);

const PORTS = `
  ReplayStore WebhookQueue EndpointStore KeyProvider WebhookSigner WebhookClock
`
  .trim()
  .split(/\s+/);

describe('the public API', () => {
  it.each([
    ['index.ts', APPLICATION],
    ['ports/index.ts', PORTS],
  ])('exports the documented names from %s', (entry, names) => {
    expect(namesOf(entry)).toEqual(expect.arrayContaining(names));
  });

  it('exports a port from the root only if applications implement it', () => {
    const root = namesOf('index.ts');
    const shared = ['KeyProvider', 'WebhookSigner'];

    expect(PORTS.filter((name) => root.includes(name))).toEqual(shared);
  });

  it('has an entry point for the ports in package.json', () => {
    const file = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
    const { exports } = JSON.parse(file) as { exports: Record<string, unknown> };

    expect(exports['./ports']).toEqual({
      types: './dist/ports/index.d.ts',
      default: './dist/ports/index.js',
    });
  });
});
