const FNV_PRIME = 0x01000193;
const ODD = 0x85ebca6b;

/** A fast, non-cryptographic hash of numbers and strings: 64 bits in two halves. */
export class FastHash {
  high = 0x811c9dc5 | 0;
  low = 0x9e3779b9 | 0;

  mix(unit: number): void {
    this.high = Math.imul(this.high ^ unit, FNV_PRIME);
    this.low = Math.imul((this.low << 5) ^ (this.low >>> 27) ^ unit, ODD);
  }

  mixString(text: string): void {
    let { high, low } = this;
    for (let at = 0; at < text.length; at++) {
      const unit = text.charCodeAt(at);
      high = Math.imul(high ^ unit, FNV_PRIME);
      low = Math.imul((low << 5) ^ (low >>> 27) ^ unit, ODD);
    }
    this.high = high;
    this.low = low;
  }
}
