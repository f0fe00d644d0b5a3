import { generateKeyPairSync, type KeyObject, randomBytes } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { isKeyId, KEY_ID_RULE } from '../token/identifier.js';
import { UsageError, writeOwnFile } from './arguments.js';
import type { Arguments, CommandIo } from './command.interface.js';

export const help = `Usage: nestjs-webhook-token keygen [alg] [options]

Creates a shared secret (HS256, the default), or a key pair: ES256, ES384, EdDSA, RS256 or PS256.

  --out <name>           write files, readable by their owner only: <name>.secret, or
                         <name>.private.pem, <name>.public.pem and <name>.jwks.json
  --kid <kid>            id of the key pair, for the JWKS; default random
  --json                 print JSON: { alg, secret } or { alg, kid, privateKey, publicKey, jwks };
                         with --out { alg, kid, files }, without the key

Without --out, the secret or private key is printed. Existing files are not overwritten.

Exit code: 0 created, 2 wrong usage.
`;

export const options = {
  out: { type: 'string' },
  kid: { type: 'string' },
  json: { type: 'boolean' },
} as const;

type Given = Arguments<typeof options>;

const PAIRS: Readonly<Record<string, () => { publicKey: KeyObject; privateKey: KeyObject }>> = {
  ES256: () => generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  ES384: () => generateKeyPairSync('ec', { namedCurve: 'P-384' }),
  EdDSA: () => generateKeyPairSync('ed25519'),
  RS256: () => generateKeyPairSync('rsa', { modulusLength: 3_072 }),
  PS256: () => generateKeyPairSync('rsa', { modulusLength: 3_072 }),
};

const SECRET_BYTES = 32;

interface CreatedKey {
  /** As JSON. */
  readonly json: Record<string, unknown>;
  /** What is printed without `--out` and `--json`. */
  readonly text: string;
  /** Content by file ending. */
  readonly files: Readonly<Record<string, string>>;
}

export async function run({ values, positionals }: Given, io: CommandIo): Promise<number> {
  const [alg = 'HS256', ...more] = positionals;
  if (more.length > 0 || (alg !== 'HS256' && !Object.hasOwn(PAIRS, alg))) {
    throw new UsageError(`Pass one algorithm: HS256, ${Object.keys(PAIRS).join(', ')}.`);
  }
  const { out, kid, json: isJson = false } = values;
  if (alg === 'HS256' && kid !== undefined) {
    throw new UsageError('--kid needs a key pair: a secret is known by its issuer alone.');
  }
  if (out !== undefined && /(?:^|\/)$/.test(out))
    throw new UsageError('--out must be a file name, such as shop.');
  if (kid !== undefined && !isKeyId(kid)) throw new UsageError(`--${KEY_ID_RULE}.`);
  const key = alg === 'HS256' ? secret() : keyPair(alg, kid);
  const files = out === undefined ? undefined : await writeAll(out, key.files);
  for (const file of files ?? []) io.stderr.write(`Wrote ${file}\n`);
  const printed = files === undefined ? key.json : { alg, kid: key.json['kid'], files };
  if (isJson) io.stdout.write(`${JSON.stringify(printed, undefined, 2)}\n`);
  else if (files === undefined) io.stdout.write(key.text);
  return 0;
}

function secret(): CreatedKey {
  const secret = randomBytes(SECRET_BYTES).toString('base64');
  const text = `${secret}\n`;
  return { json: { alg: 'HS256', secret }, text, files: { '.secret': text } };
}

function keyPair(alg: string, kid = randomBytes(8).toString('hex')): CreatedKey {
  const { publicKey, privateKey } = PAIRS[alg]!();
  const pem = {
    privateKey: privateKey.export({ type: 'pkcs8', format: 'pem' }) as string,
    publicKey: publicKey.export({ type: 'spki', format: 'pem' }) as string,
  };
  const jwks = { keys: [{ ...publicKey.export({ format: 'jwk' }), kid, alg, use: 'sig' }] };
  const jwksText = `${JSON.stringify(jwks, undefined, 2)}\n`;
  return {
    json: { alg, kid, ...pem, jwks },
    text: `${pem.privateKey}${pem.publicKey}${jwksText}`,
    files: { '.private.pem': pem.privateKey, '.public.pem': pem.publicKey, '.jwks.json': jwksText },
  };
}

async function writeAll(name: string, files: CreatedKey['files']): Promise<readonly string[]> {
  const written: string[] = [];
  try {
    for (const [ending, content] of Object.entries(files)) {
      await writeOwnFile(`${name}${ending}`, content, 'wx');
      written.push(`${name}${ending}`);
    }
  } catch (error) {
    await Promise.all(written.map(async (file) => rm(file)));
    throw error;
  }
  return written;
}
