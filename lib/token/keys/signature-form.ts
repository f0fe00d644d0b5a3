import { ecdsaFromDer } from './ecdsa-signature.js';

/** Bytes of r, and of s. */
const ECDSA_BYTES: Readonly<Record<string, number>> = { ES256: 32, ES384: 48 };

/** Bytes of MACs and of Ed25519 signatures. */
const FIXED_BYTES: Readonly<Record<string, number>> = {
  HS256: 32,
  HS384: 48,
  HS512: 64,
  EdDSA: 64,
};

/** RSA moduli of 2048 to 8192 bits. */
const LEAST_RSA_BYTES = 256;
const MOST_RSA_BYTES = 1_024;

/** The signature as a token carries it, or what is wrong with it. */
export type FormedSignature =
  | { readonly signature: Uint8Array; readonly fault?: undefined }
  | { readonly signature?: undefined; readonly fault: string };

/**
 * Holds what a signer gave against the form its algorithm has, so that a wrong setting shows here and not as
 * `bad_signature` at every receiver. Whether the signature holds is for receivers to tell.
 *
 * @param modulusBytes - of an RSA key, where it is known
 */
export function formSignature(
  alg: string,
  given: unknown,
  modulusBytes: number | undefined,
): FormedSignature {
  if (!(given instanceof Uint8Array)) {
    return { fault: `a signer's sign() must give bytes, as a Uint8Array or a Buffer` };
  }
  const half = ECDSA_BYTES[alg];
  if (half !== undefined) return formEcdsa(alg, given, half);
  const fixed = FIXED_BYTES[alg] ?? modulusBytes;
  if (fixed !== undefined && given.length !== fixed) return wrongLength(alg, given, `${fixed}`);
  if (given.length < (fixed ?? LEAST_RSA_BYTES) || given.length > MOST_RSA_BYTES) {
    return wrongLength(alg, given, `${LEAST_RSA_BYTES} to ${MOST_RSA_BYTES}`);
  }
  return { signature: given };
}

function formEcdsa(alg: string, given: Uint8Array, half: number): FormedSignature {
  // r‖s by its length: that DER comes out just as short happens once in 2^45 signatures, and the next try is good.
  if (given.length === 2 * half) return { signature: given };
  const signature = ecdsaFromDer(given, half);
  return signature === undefined
    ? {
        fault: `an ${alg} signature has ${2 * half} bytes (r and s) or is DER of these, and the signer's ${given.length} bytes are neither: check that its key is on the curve of ${alg}`,
      }
    : { signature };
}

function wrongLength(alg: string, given: Uint8Array, wanted: string): FormedSignature {
  return {
    fault: `a signature of ${alg} has ${wanted} bytes, and the signer gave ${given.length}: check that its key and its algorithm are those of ${alg}, and that it gives bytes and not their text`,
  };
}
