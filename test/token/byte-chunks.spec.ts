import { randomBytes } from 'node:crypto';
import { describe, expect, it } from '@jest/globals';
import { ByteChunks } from '../../lib/token/payload.js';

describe('the bytes of a body', () => {
  it.each([0, 1, 255, 256, 257, 100_000])('are joined in their order: %i chunks', (count) => {
    const sent = randomBytes(count);
    const chunks = new ByteChunks();
    for (let i = 0; i < count; i++) chunks.add(sent.subarray(i, i + 1));

    expect(chunks.length).toBe(count);
    expect(chunks.bytes().equals(sent)).toBe(true);
    const taken = chunks.take();
    expect(taken.length).toBeLessThan(1_000);
    expect(Buffer.concat(taken).equals(sent)).toBe(true);
    expect(chunks.length).toBe(0);
    expect(chunks.bytes().length).toBe(0);
  });

  it('of a single chunk are not copied', () => {
    const chunk = Buffer.from('{"id":1}');
    const chunks = new ByteChunks();
    chunks.add(chunk);

    expect(chunks.bytes()).toBe(chunk);
  });
});
