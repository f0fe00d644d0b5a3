/** PEM labels of supported keys. */
const KEY_LABELS: ReadonlySet<string> = new Set([
  'PUBLIC KEY',
  'RSA PUBLIC KEY',
  'PRIVATE KEY',
  'RSA PRIVATE KEY',
  'EC PRIVATE KEY',
]);

const BEGIN = /-----BEGIN ([A-Z0-9 ]{1,40})-----/g;

/**
 * Reports how PEM was damaged in configuration, and the remedy. Nothing is repaired silently, since the cause would
 * damage the next key too.
 *
 * @param text - contains `-----BEGIN`
 * @returns the problem and its remedy, without quoting the key; `undefined` for PEM of RFC 7468, also with CRLF
 */
export function pemProblem(text: string): string | undefined {
  return encryption(text) ?? damage(text) ?? unsupportedContent(text);
}

/** Whether PEM has a private key that needs a passphrase, in the form of PKCS#8 or the traditional one. */
export function isEncryptedPem(text: string): boolean {
  return /-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED/.test(text);
}

function encryption(text: string): string | undefined {
  return isEncryptedPem(text)
    ? 'the PEM is encrypted: decrypt it with createPrivateKey({ key, passphrase }) of node:crypto, and pass the KeyObject'
    : undefined;
}

function damage(text: string): string | undefined {
  if (/\\[nr]/.test(text)) {
    return 'the PEM has the two characters "\\n" instead of line breaks, as in an environment file: read it with value.replaceAll("\\\\n", "\\n")';
  }
  if (/^\s*["']/.test(text)) {
    return 'the PEM is in quotation marks: remove them';
  }
  if (/^[ \t]+-----BEGIN /m.test(text) || /^[ \t]+\S/m.test(block(text))) {
    return 'the lines of the PEM are indented, as in a block of YAML or a template literal: remove the indentation of every line';
  }
  if (!/-----END [A-Z0-9 ]+-----/.test(text)) {
    return 'the PEM has no END line: copy all of it';
  }
  if (!/^-----BEGIN [A-Z0-9 ]+-----[ \t]*\r?\n/m.test(text) || /[^\n]-----END /.test(text)) {
    return 'the PEM has lost its line breaks, as in a folded value or a single-line field: put a line break after the BEGIN line, before the END line and after each line between them';
  }
  if (/\n[ \t]*\r?\n/.test(block(text))) {
    return 'the PEM has empty lines between its lines: remove them';
  }
  return undefined;
}

/** From the first BEGIN to the first END; RFC 7468 allows text around them. */
function block(text: string): string {
  const start = text.indexOf('-----BEGIN ');
  const end = text.indexOf('-----END ', start);
  return text.slice(start, end < 0 ? undefined : end);
}

/** Complete PEM that is not exactly one key. */
function unsupportedContent(text: string): string | undefined {
  const labels = [...text.matchAll(BEGIN)].map(([, label]) => label!);
  if (labels.includes('CERTIFICATE')) {
    return 'the PEM is a certificate, whose dates and issuer would not be checked: extract its key with "openssl x509 -pubkey -noout"';
  }
  if (labels.includes('OPENSSH PRIVATE KEY')) {
    return 'the PEM is in the OpenSSH format: convert it with "ssh-keygen -p -m PKCS8"';
  }
  // `openssl ecparam -genkey` writes the parameters of the curve before the key.
  const keys = labels.filter((label) => label !== 'EC PARAMETERS');
  if (keys.length > 1) {
    return `the PEM has ${keys.length} blocks: pass one key per entry`;
  }
  return keys.every((label) => KEY_LABELS.has(label))
    ? undefined
    : 'the PEM is not a key: pass one that begins with "BEGIN PUBLIC KEY" or "BEGIN PRIVATE KEY"';
}
