import { createHash } from 'node:crypto';
import { extname } from 'node:path';
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

/** Media types of the files that the build writes. */
const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
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

/**
 * Loads the built page.
 *
 * @returns files by path relative to the page; `index.html` always exists
 */
export async function loadAssets(): Promise<ReadonlyMap<string, ConsoleAsset>> {
  // @ts-expect-error The build writes this module, without types. To find a file, CommonJS would need import.meta.
  const page = import('#console-page') as Promise<{ files: Readonly<Record<string, string>> }>;
  const { files } = await page.catch((error: NodeJS.ErrnoException) => {
    // The error of Jest has no code.
    const { code = '', message } = error;
    if (!code.endsWith('MODULE_NOT_FOUND') && !message.startsWith('Cannot find module'))
      throw error;
    return { files: { 'index.html': PLACEHOLDER } };
  });
  return new Map(
    Object.entries(files).map(([file, text]) => [file, assetOf(file, Buffer.from(text))]),
  );
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
