import type { FailureReason } from 'nestjs-webhook-token/ports';
import type { Behaviour } from './hostile-receiver.js';

export const OK = 'HTTP/1.1 200 OK\r\n';

/** Writes an answer and leaves the connection open. */
export function answer(text: string): Behaviour {
  return (socket) => void socket.write(text, 'latin1');
}

/** Writes an answer and closes the connection. */
export function lastAnswer(text: string): Behaviour {
  return (socket) => void socket.end(text, 'latin1');
}

/** Writes an answer and resets the connection. */
export function thenReset(text: string): Behaviour {
  return (socket) => void socket.write(text, 'latin1', () => socket.resetAndDestroy());
}

/** Answers that are not valid HTTP or are incomplete, with the failures that are reported. */
export const NO_ANSWERS: [string, Behaviour, FailureReason][] = [
  ['a head of 60 kB', answer(`${OK}X: ${'x'.repeat(60_000)}\r\n\r\n`), 'response_too_large'],
  ['2,000 headers', answer(`${OK}${'X: y\r\n'.repeat(12_000)}\r\n`), 'response_too_large'],
  ['a reset before an answer', (socket) => void socket.resetAndDestroy(), 'connection_reset'],
  ['a FIN before an answer', (socket) => void socket.end(), 'connection_reset'],
  ['a reset within the status line', thenReset('HTTP/1.1 2'), 'connection_reset'],
  ['a FIN within the status line', lastAnswer('HTTP/1.1 2'), 'connection_reset'],
  ['a reset within the headers', thenReset(`${OK}Content-Le`), 'connection_reset'],
  ['a FIN within the headers', lastAnswer(`${OK}Content-Le`), 'connection_reset'],
  ['a reset within the body', thenReset(`${OK}Content-Length: 9\r\n\r\nx`), 'connection_reset'],
  ['a FIN within the body', lastAnswer(`${OK}Content-Length: 9\r\n\r\nx`), 'connection_reset'],
  [
    'a FIN within a chunk',
    lastAnswer(`${OK}Transfer-Encoding: chunked\r\n\r\n5\r\nhel`),
    'connection_reset',
  ],
  [
    'a chunk without a size',
    answer(`${OK}Transfer-Encoding: chunked\r\n\r\nnone\r\n`),
    'malformed_response',
  ],
  [
    'a chunk with a negative size',
    answer(`${OK}Transfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n`),
    'malformed_response',
  ],
  [
    'a chunk of 2^64 bytes',
    answer(`${OK}Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n`),
    'malformed_response',
  ],
  [
    'a length and chunks',
    answer(`${OK}Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n`),
    'malformed_response',
  ],
  [
    'two different lengths',
    answer(`${OK}Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx`),
    'malformed_response',
  ],
  ['an invalid length', answer(`${OK}Content-Length: -5\r\n\r\n`), 'malformed_response'],
  [
    'a length of 30 digits',
    answer(`${OK}Content-Length: ${'9'.repeat(30)}\r\n\r\n`),
    'malformed_response',
  ],
  ['HTTP/0.9', lastAnswer('<html>hello</html>'), 'malformed_response'],
  ['HTTP/9.9', answer('HTTP/9.9 200 OK\r\n\r\n'), 'malformed_response'],
  ['an SSH greeting', answer('SSH-2.0-OpenSSH\r\n'), 'malformed_response'],
  ['an SMTP greeting', answer('220 mail.example ESMTP\r\n'), 'malformed_response'],
  ['an HTTP/2 frame', answer('\0\0\x12\x04\0\0\0\0\0'), 'malformed_response'],
  ['zeros', answer('\0'.repeat(1_000)), 'malformed_response'],
  ['a request instead of an answer', answer('GET / HTTP/1.1\r\n\r\n'), 'malformed_response'],
  [
    'a change of the protocol',
    answer('HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n'),
    'malformed_response',
  ],
  ['an invalid status', answer('HTTP/1.1 abc OK\r\n\r\n'), 'malformed_response'],
  ['a bare line feed in a header', answer(`${OK}X: a\nb\r\n\r\n`), 'malformed_response'],
  ['a header without a name', answer(`${OK}: x\r\n\r\n`), 'malformed_response'],
];

/** Complete answers, with bytes after them that belong to none. */
export const ANSWERS_WITH_MORE: [string, string][] = [
  ['a 204 with a body', 'HTTP/1.1 204 x\r\nContent-Length: 5\r\n\r\nhello'],
  ['a 204 with chunks', 'HTTP/1.1 204 x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
  ['more bytes than its length', `${OK}Content-Length: 2\r\n\r\nhello`],
  ['garbage after it', `${OK}Content-Length: 0\r\n\r\n\0\0rubbish`],
];
