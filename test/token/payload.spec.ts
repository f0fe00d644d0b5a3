import { afterEach, describe, expect, it, jest } from '@jest/globals';
import { parseJsonPayload } from '../../lib/token/payload.js';

const parse = (text: string, maxMembers: number): unknown =>
  parseJsonPayload(Buffer.from(text), 'application/json', maxMembers);

describe('a JSON body', () => {
  afterEach(() => {
    jest.restoreAllMocks();
  });

  it('may have as many members as allowed', () => {
    expect(parse('{"list":[1,2],"more":{"a":"x,[{:"}}', 5)).toEqual({
      list: [1, 2],
      more: { a: 'x,[{:' },
    });
  });

  it('is refused if it has one more, at any level', () => {
    expect(() => parse('{"list":[1,2],"more":{"a":"x,[{:"}}', 4)).toThrow(
      expect.objectContaining({
        code: 'invalid_payload',
        message: 'the body has more than 4 members; maxJsonMembers of the receiver sets the limit',
      }),
    );
  });

  it('is refused before it is parsed', () => {
    const members = Array.from({ length: 500_000 }, (_, i) => `"k${i}":1`);
    const body = `{${members.join(',')}}`;
    const parser = jest.spyOn(JSON, 'parse');

    expect(() => parse(body, 100_000)).toThrow('more than 100000 members');
    expect(parser).not.toHaveBeenCalled();
  });

  it('is counted in the charset that its content type names', () => {
    const utf16 = Buffer.from('[1,2,3]', 'utf16le');

    expect(() => parseJsonPayload(utf16, 'application/json; charset=utf-16le', 2)).toThrow(
      'more than 2 members',
    );
  });
});
