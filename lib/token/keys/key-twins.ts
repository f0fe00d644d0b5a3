import type { HmacKey } from './hmac-key.js';
import type { WindowedKey } from './issuer-keys.js';
import type { JoseKey } from './jose-key.js';

type Entry = WindowedKey<HmacKey | JoseKey>;

/** Collects the keys of one issuer, and refuses pairs of them that cannot both be meant. */
export class KeyTwins {
  private readonly entries: Entry[] = [];

  /** What was added, without repetitions. */
  get distinct(): readonly Entry[] {
    return this.entries;
  }

  /**
   * Adds a key. Quite the same key once more changes nothing: while no rotation is on, the variable of the old
   * secret and that of the new one may well hold the same.
   *
   * @returns what is wrong, and the remedy
   */
  add(added: Entry): string | undefined {
    const twins = this.entries.filter(({ key }) => key.holdsSame(added.key));
    const otherAlgorithm = twins.find(({ key }) => key.alg !== added.key.alg)?.key.alg;
    if (otherAlgorithm !== undefined) {
      return `the same key stands here for ${otherAlgorithm} already, and a key serves one algorithm (RFC 8725, section 3.1): make one for each`;
    }
    // Otherwise the entry without an end would keep alive what the other one revokes.
    if (!twins.every((twin) => sameWindow(twin, added))) {
      return 'the same key stands here already, with another notBefore or notAfter: keep the one that is meant';
    }
    if (twins.some(({ key }) => key.kid === added.key.kid)) return undefined;
    const { kid } = added.key;
    if (kid !== undefined && this.entries.some(({ key }) => key.kid === kid)) {
      return 'another key of the issuer has this kid: a name stands for one key, so give each its own';
    }
    this.entries.push(added);
    return undefined;
  }
}

function sameWindow({ window: one }: Entry, { window: other }: Entry): boolean {
  return one?.opens === other?.opens && one?.closes === other?.closes;
}
