/** Arithmetic on edwards25519 (RFC 8032, section 5.1), written out so that the library's list has an independent check. */

const P = 2n ** 255n - 19n;
const D = mod(-121_665n * inverse(121_666n));
/** The order of the base point. */
const L = 2n ** 252n + 27_742_317_777_372_353_535_851_937_790_883_648_493n;

interface Point {
  readonly x: bigint;
  readonly y: bigint;
}

const IDENTITY: Point = { x: 0n, y: 1n };

/** Every 32-byte encoding of the eight points whose order divides 8, the ones that are not reduced included. */
export function smallOrderEncodings(): readonly Buffer[] {
  const encodings = new Map<string, Buffer>();
  for (const { y } of torsionPoints()) {
    for (const value of [y, y + P]) {
      for (const sign of [0n, 1n]) {
        if (value >= 2n ** 255n) continue;
        const bytes = littleEndian(value | (sign << 255n));
        encodings.set(bytes.toString('hex'), bytes);
      }
    }
  }
  return [...encodings.values()];
}

/** A point times the order of the base point keeps only its part of small order. */
function torsionPoints(): readonly Point[] {
  const found = new Map<bigint, Point>();
  for (let y = 2n; found.size < 8; y++) {
    const x = squareRoot(mod((y * y - 1n) * inverse(D * y * y + 1n)));
    if (x === undefined) continue;
    const generator = times({ x, y }, L);
    for (let n = 0n; n < 8n; n++) {
      const point = times(generator, n);
      found.set(point.x * P + point.y, point);
    }
  }
  return [...found.values()];
}

function times(point: Point, factor: bigint): Point {
  let result = IDENTITY;
  let base = point;
  for (let rest = factor; rest > 0n; rest >>= 1n) {
    if (rest & 1n) result = add(result, base);
    base = add(base, base);
  }
  return result;
}

function add(a: Point, b: Point): Point {
  const product = D * a.x * b.x * a.y * b.y;
  return {
    x: mod((a.x * b.y + b.x * a.y) * inverse(1n + product)),
    y: mod((a.y * b.y + a.x * b.x) * inverse(1n - product)),
  };
}

function squareRoot(square: bigint): bigint | undefined {
  const candidate = power(square, (P + 3n) / 8n);
  return [candidate, mod(candidate * power(2n, (P - 1n) / 4n))].find(
    (root) => mod(root * root) === square,
  );
}

function inverse(value: bigint): bigint {
  return power(mod(value), P - 2n);
}

function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  let square = mod(base);
  for (let rest = exponent; rest > 0n; rest >>= 1n) {
    if (rest & 1n) result = mod(result * square);
    square = mod(square * square);
  }
  return result;
}

function mod(value: bigint): bigint {
  return ((value % P) + P) % P;
}

function littleEndian(value: bigint): Buffer {
  return Buffer.from(Buffer.from(value.toString(16).padStart(64, '0'), 'hex').toReversed());
}
