/** What a key's PEM is labelled, and may be read as. */
const KEY_LABELS: ReadonlySet<string> = new Set([
  'PUBLIC KEY',
  'RSA PUBLIC KEY',
  'PRIVATE KEY',
  'RSA PRIVATE KEY',
  'EC PRIVATE KEY',
]);

const BEGIN = /-----BEGIN ([A-Z0-9 ]{1,40})-----/g;

/**
 * Says how PEM was damaged on its way here, and how to repair that. Nothing is repaired silently: what
 * damages one key damages the next one, and the one that is read with luck today is not read tomorrow.
 *
 * @param text - that holds `-----BEGIN`
 * @returns what is wrong and the remedy, without quoting the key; `undefined` for PEM as RFC 7468 has it, CRLF included
 */
export function pemFault(text: string): string | undefined {
  return encryption(text) ?? damage(text) ?? foreignContent(text);
}

function encryption(text: string): string | undefined {
  return /-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED/.test(text)
    ? 'the PEM is encrypted: decrypt it where it is read, with createPrivateKey({ key, passphrase }) of node:crypto, and give the KeyObject'
    : undefined;
}

function damage(text: string): string | undefined {
  if (/\\[nr]/.test(text)) {
    return 'the PEM has the two characters "\\n" where its lines should end, as environment files leave them: read it with value.replaceAll("\\\\n", "\\n")';
  }
  if (/^\s*["']/.test(text)) {
    return 'the PEM stands in quotation marks: remove them where it is read';
  }
  if (/^[ \t]+-----BEGIN /m.test(text) || /^[ \t]+\S/m.test(block(text))) {
    return 'the lines of the PEM begin with white space, as a block of YAML or a template literal leaves it: remove the indentation of every line';
  }
  if (!/-----END [A-Z0-9 ]+-----/.test(text)) {
    return 'the PEM has no END line: it was cut off, so copy the whole of it';
  }
  if (!/^-----BEGIN [A-Z0-9 ]+-----[ \t]*\r?\n/m.test(text) || /[^\n]-----END /.test(text)) {
    return 'the PEM has lost its line breaks, as a folded value or a single-line field leaves it: give the BEGIN line, the END line and each line between them a line of its own';
  }
  if (/\n[ \t]*\r?\n/.test(block(text))) {
    return 'the PEM has empty lines between its lines: remove them';
  }
  return undefined;
}

/** From the first BEGIN to the first END: text around it is allowed, and no part of the key. */
function block(text: string): string {
  const start = text.indexOf('-----BEGIN ');
  const end = text.indexOf('-----END ', start);
  return text.slice(start, end < 0 ? undefined : end);
}

/** PEM that is whole, and is not one key. */
function foreignContent(text: string): string | undefined {
  const labels = [...text.matchAll(BEGIN)].map(([, label]) => label!);
  if (labels.includes('CERTIFICATE')) {
    return 'the PEM is a certificate, whose dates and issuer nobody would check here: take its key, with "openssl x509 -pubkey -noout"';
  }
  if (labels.includes('OPENSSH PRIVATE KEY')) {
    return 'the PEM is in the format of OpenSSH: convert it with "ssh-keygen -p -m PKCS8"';
  }
  // `openssl ecparam -genkey` writes the curve's parameters ahead of the key.
  const keys = labels.filter((label) => label !== 'EC PARAMETERS');
  if (keys.length > 1) {
    return `the PEM holds ${keys.length} blocks: give one key, and each further one an entry of its own`;
  }
  return keys.every((label) => KEY_LABELS.has(label))
    ? undefined
    : 'the PEM is no key: give one that begins with "BEGIN PUBLIC KEY" or "BEGIN PRIVATE KEY"';
}
