import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { extname, join, sep } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import type { ConsoleBrand } from './console-api.js';

export interface ConsoleAsset {
  readonly bytes: Buffer;
  readonly gzipped: Buffer;
  readonly type: string;
  readonly etag: string;
  /** Its name contains a hash of its content. */
  readonly immutable: boolean;
}

/** Media types of the files that the build writes; others are not served. */
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml; charset=utf-8',
  '.png': 'image/png',
  '.ico': 'image/x-icon',
  '.woff2': 'font/woff2',
};

/** Served until the page is built. */
const PLACEHOLDER = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Webhooks</title>
<h1>Webhooks</h1>
<p>The page of the console is not built. Its JSON API answers at <a href="./api/session">api/session</a>.</p>
</html>
`;

/** The built page: beside the compiled module, or in `dist` if this file runs from the sources. */
const FOLDERS = ['./public/', '../../dist/console/public/'];

/**
 * Reads the built page into memory.
 *
 * @returns files by path relative to the page; `index.html` always exists
 */
export function readAssets(
  folders: readonly string[] = FOLDERS.map((one) => fileURLToPath(new URL(one, import.meta.url))),
): ReadonlyMap<string, ConsoleAsset> {
  const folder = folders.find((one) => existsSync(join(one, 'index.html')));
  if (folder === undefined) {
    return new Map([['index.html', assetOf('index.html', Buffer.from(PLACEHOLDER))]]);
  }
  const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => TYPES[extname(file)] !== undefined && statSync(join(folder, file)).isFile())
    .map((file) => file.split(sep).join('/'));
  return new Map(files.map((file) => [file, assetOf(file, readFileSync(join(folder, file)))]));
}

function assetOf(file: string, bytes: Buffer): ConsoleAsset {
  const digest = createHash('sha256').update(bytes).digest('base64url').slice(0, 22);
  return {
    bytes,
    gzipped: gzipSync(bytes),
    type: TYPES[extname(file)]!,
    // Weak: the same for both encodings.
    etag: `W/"${digest}"`,
    immutable: file.startsWith('assets/'),
  };
}

/**
 * Headers of the page. Its policy replaces the application's: no inline script, and nothing of another origin but the logo.
 *
 * @param ancestors - origins whose pages may show it in a frame
 */
export function pageHeaders(
  { logo }: ConsoleBrand,
  ancestors: readonly string[],
): Record<string, string> {
  const images = ["'self'", 'data:', ...(logo?.startsWith('https:') ? [new URL(logo).origin] : [])];
  return {
    'Content-Security-Policy': [
      "default-src 'none'",
      "script-src 'self'",
      "style-src 'self'",
      `img-src ${images.join(' ')}`,
      "font-src 'self'",
      "connect-src 'self'",
      "base-uri 'none'",
      "form-action 'none'",
      `frame-ancestors ${ancestors.length === 0 ? "'none'" : ancestors.join(' ')}`,
    ].join('; '),
    // It cannot name origins; every browser with partitioned cookies reads the policy instead.
    ...(ancestors.length === 0 && { 'X-Frame-Options': 'DENY' }),
    'Referrer-Policy': 'no-referrer',
  };
}
