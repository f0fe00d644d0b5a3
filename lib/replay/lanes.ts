const FNV_PRIME = 0x01000193;
const ODD = 0x85ebca6b;

/** Mixes numbers and texts into two lanes of 32 bits, which together mark them: quickly, and it is no digest. */
export class Lanes {
  high = 0x811c9dc5 | 0;
  low = 0x9e3779b9 | 0;

  mix(unit: number): void {
    this.high = Math.imul(this.high ^ unit, FNV_PRIME);
    this.low = Math.imul((this.low << 5) ^ (this.low >>> 27) ^ unit, ODD);
  }

  mixText(text: string): void {
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
