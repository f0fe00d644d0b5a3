import { readFileSync } from 'node:fs';
import { describe, expect, it } from '@jest/globals';
import ts from 'typescript';

const ROOT = new URL('../../', import.meta.url).pathname;
const LIB = `${ROOT}lib/`;
/** The most names that the entry points export, all together and the root alone. */
const MOST_NAMES = 240;
const MOST_AT_ROOT = 93;

const { exports: EXPORTS } = JSON.parse(readFileSync(`${ROOT}package.json`, 'utf8')) as {
  exports: Record<string, string | { readonly types: string; readonly default: string }>;
};

/** The entry points as files of lib, such as `ports/index.ts`. */
const ENTRIES = Object.values(EXPORTS).flatMap((entry) =>
  typeof entry === 'string' ? [] : [entry.types.replace('./dist/', '').replace('.d.ts', '.ts')],
);

const program = ts.createProgram(
  ENTRIES.map((entry) => `${LIB}${entry}`),
  {
    module: ts.ModuleKind.NodeNext,
    moduleResolution: ts.ModuleResolutionKind.NodeNext,
    target: ts.ScriptTarget.ES2022,
    experimentalDecorators: true,
    skipLibCheck: true,
    types: ['node'],
  },
);
const checker = program.getTypeChecker();

function exportsOf(entry: string): readonly ts.Symbol[] {
  return checker.getExportsOfModule(
    checker.getSymbolAtLocation(program.getSourceFile(`${LIB}${entry}`)!)!,
  );
}

/** Names that an entry point exports, including types. */
function namesOf(entry: string): string[] {
  return exportsOf(entry).map(({ name }) => name);
}

/** The interfaces of lib that exported functions, and methods of exported classes, return or resolve to, also in lists. */
function namesOfResults(entry: string): string[] {
  const all = exportsOf(entry).map((one) =>
    one.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(one) : one,
  );
  const methods = all
    .filter(({ flags }) => flags & ts.SymbolFlags.Class)
    .flatMap((one) => checker.getPropertiesOfType(checker.getDeclaredTypeOfSymbol(one)))
    .filter(({ valueDeclaration: node }) => node !== undefined && isPublic(node));
  const results = [...all.filter(({ flags }) => flags & ts.SymbolFlags.Function), ...methods]
    .flatMap((callable) => checker.getTypeOfSymbol(callable).getCallSignatures())
    .map((signature) => checker.getReturnTypeOfSignature(signature))
    .map((type) => checker.getNonNullableType(checker.getAwaitedType(type) ?? type))
    .flatMap((type) =>
      checker.isArrayType(type) ? checker.getTypeArguments(type as ts.TypeReference) : [type],
    );
  return results
    .filter((type) => type.symbol?.declarations?.some(isInterfaceOfLib))
    .map((type) => type.symbol.name);
}

/** The interfaces of lib in the lists and members of an exported view, besides the exported ones. */
function unnamedIn(view: ts.Symbol, exported: ReadonlySet<ts.Symbol>): string[] {
  const found = new Set<string>();
  const look = (type: ts.Type): void => {
    const one = checker.getNonNullableType(type);
    if (one.isUnionOrIntersection()) return one.types.forEach(look);
    if (checker.isArrayType(one))
      return checker.getTypeArguments(one as ts.TypeReference).forEach(look);
    const isOurs = one.symbol?.declarations?.some((node) =>
      node.getSourceFile().fileName.startsWith(LIB),
    );
    if (isOurs !== true || exported.has(one.symbol)) return;
    if (one.symbol.declarations!.some(isInterfaceOfLib)) found.add(one.symbol.name);
    membersOf(one).forEach(look);
  };
  membersOf(checker.getDeclaredTypeOfSymbol(view)).forEach(look);
  return [...found];
}

function membersOf(type: ts.Type): ts.Type[] {
  return checker.getPropertiesOfType(type).map((member) => checker.getTypeOfSymbol(member));
}

function isPublic(node: ts.Declaration): boolean {
  const hidden = ts.ModifierFlags.Private | ts.ModifierFlags.Protected;
  const isHidden = ts
    .getJSDocTags(node)
    .some(({ tagName }) => ['internal', 'hidden'].includes(tagName.text));
  return !isHidden && (ts.getCombinedModifierFlags(node) & hidden) === 0;
}

function isInterfaceOfLib(node: ts.Declaration): boolean {
  return ts.isInterfaceDeclaration(node) && node.getSourceFile().fileName.startsWith(LIB);
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

  it('exports what methods resolve to, so that declarations of their callers can name it', () => {
    const names = ENTRIES.flatMap(namesOf);

    expect(ENTRIES.flatMap(namesOfResults).filter((name) => !names.includes(name))).toEqual([]);
  });

  it.each([
    'StoredEndpoint',
    'WebhookDelivery',
    'WebhookDeliveryDetails',
    'WebhookDeliveryStats',
    'WebhookEndpointView',
    'WebhookExplanation',
    'WebhookKeySet',
  ])('names or inlines the members of %s, for the same reason', (name) => {
    const all = ENTRIES.flatMap(exportsOf).map((one) =>
      one.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(one) : one,
    );
    const view = all.find((one) => one.name === name)!;
    // They are built of what options have, or of types that no entry point exports.
    const known = ['StoredEndpointSettings', 'StoredCredentials', 'ReceivedEvent', 'TraceContext'];

    expect(unnamedIn(view, new Set(all)).filter((one) => !known.includes(one))).toEqual([]);
  });

  it('has an entry point for the ports in package.json', () => {
    expect(EXPORTS['./ports']).toEqual({
      types: './dist/ports/index.d.ts',
      default: './dist/ports/index.js',
    });
  });

  it('exports names that users write, and not the types behind them', () => {
    const names = ENTRIES.flatMap(namesOf);

    expect(names.length).toBeLessThanOrEqual(MOST_NAMES);
    expect(namesOf('index.ts').length).toBeLessThanOrEqual(MOST_AT_ROOT);
  });
});
