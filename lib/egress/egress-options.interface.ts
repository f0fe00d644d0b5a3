/** Which addresses deliveries may go to. By default: public ones, over HTTPS. */
export interface EgressOptions {
  /** Also deliver over plain `http:`, where anybody on the way can read the token. Default: `false`. */
  readonly allowHttp?: boolean | undefined;
  /**
   * Also deliver to loopback, RFC 1918, 100.64.0.0/10 and fc00::/7. Link-local, cloud metadata, multicast
   * and documentation addresses stay refused. Default: `false`.
   */
  readonly allowPrivateNetworks?: boolean | undefined;
  /**
   * Addresses (`'10.1.2.3'`, `'fd12::7'`) and networks (`'10.1.0.0/16'`) to open, whatever else refuses
   * them; exactly these, and nothing beside them. Default: none.
   */
  readonly allowedAddresses?: readonly string[] | undefined;
}
