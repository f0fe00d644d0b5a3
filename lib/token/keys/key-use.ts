/** What a key is for. */
export type KeyUse = 'sign' | 'verify';

/** Switches for tests. */
export interface KeyPolicy {
  /** Take secrets that are too short to be safe, with a warning. Never in production. */
  readonly allowWeakSecrets?: boolean | undefined;
}

/** The key that was made of some material, or what is wrong with it. */
export type MadeKey<Key> =
  | { readonly key: Key; readonly fault?: undefined }
  | { readonly key?: undefined; readonly fault: string };
