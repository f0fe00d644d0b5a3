import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from '@jest/globals';
import ts from 'typescript';
import { ROOT } from './documents.js';

const PATH = 'docs/reference/options.md';
const PAGE = readFileSync(join(ROOT, PATH), 'utf8');
const DOCUMENTED = new Set(
  [...PAGE.matchAll(/`([\w.]+)`/g)].flatMap(([, option]) => option!.split('.')),
);

/** Interfaces of the options that an application writes. */
const INTERFACES = [
  'WebhookModuleOptions',
  'WebhookModuleExtras',
  'WebhookReceiverOptions',
  'WebhookReplayOptions',
  'WebhookPublisherOptions',
  'WebhookEndpointOptions',
  'JwksFetchOptions',
  'EgressOptions',
  'SignOptions',
  'PublishOptions',
];

/** The members that interfaces of `lib` declare, by the interface's name. */
function declaredMembers(): Map<string, string[]> {
  const members = new Map<string, string[]>();
  const files = readdirSync(join(ROOT, 'lib'), { recursive: true, encoding: 'utf8' });
  for (const file of files.filter((name) => name.endsWith('.ts'))) {
    const text = readFileSync(join(ROOT, 'lib', file), 'utf8');
    for (const statement of ts.createSourceFile(file, text, ts.ScriptTarget.Latest).statements) {
      if (!ts.isInterfaceDeclaration(statement)) continue;
      const names = statement.members.flatMap(({ name }) =>
        name !== undefined && ts.isIdentifier(name) ? [name.text] : [],
      );
      members.set(statement.name.text, names);
    }
  }
  return members;
}

describe(PATH, () => {
  const declared = declaredMembers();

  it.each(INTERFACES)('lists every option of %s', (name) => {
    const options = declared.get(name) ?? [];

    expect(options).not.toEqual([]);
    expect(options.filter((option) => !DOCUMENTED.has(option))).toEqual([]);
  });
});
