import { describe, expect, it } from '@jest/globals';
import { parseAnswer } from '../../lib/cli/conformance/http-exchange.js';

const parse = (text: string, method = 'POST', ended = false) =>
  parseAnswer(Buffer.from(text, 'latin1'), method, ended);

describe('an HTTP answer', () => {
  it.each<[string, string, string, boolean, string]>([
    ['a length', 'HTTP/1.1 400 Bad\r\nContent-Length: 3\r\n\r\nabcdef', 'POST', false, 'abc'],
    [
      'chunks',
      'HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n',
      'POST',
      false,
      'abc',
    ],
    ['the end of the connection', 'HTTP/1.0 400 Bad\r\n\r\nabc', 'POST', true, 'abc'],
    ['HEAD', 'HTTP/1.1 400 Bad\r\nContent-Length: 3\r\n\r\n', 'HEAD', false, ''],
    [
      'an interim answer before it',
      'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 400 Bad\r\nContent-Length: 3\r\n\r\nabc',
      'POST',
      false,
      'abc',
    ],
  ])('is framed by %s', (_, text, method, ended, body) => {
    expect(parse(text, method, ended)?.answer).toMatchObject({ status: 400, body });
  });

  it.each<[string, string]>([
    ['its head', 'HTTP/1.1 400 Bad\r\nContent-Length: 3\r\n'],
    ['its body', 'HTTP/1.1 400 Bad\r\nContent-Length: 3\r\n\r\nab'],
    ['the end of a body without a length', 'HTTP/1.1 400 Bad\r\n\r\nabc'],
    ['a chunk', 'HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab'],
    ['the last chunk', 'HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n'],
    ['the final answer', 'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 40'],
  ])('is not complete without %s', (_, text) => {
    expect(parse(text)).toBeUndefined();
  });

  it('ends before the bytes that follow it', () => {
    const first = 'HTTP/1.1 204 No Content\r\n\r\n';

    expect(parse(`${first}HTTP/1.1 400 Bad`)?.length).toBe(first.length);
  });

  it('joins repeated headers, whatever their case', () => {
    const { answer } = parse('HTTP/1.1 204 No\r\nA: 1\r\na: 2\r\n\r\n')!;

    expect(answer.headers.get('a')).toBe('1, 2');
  });
});
