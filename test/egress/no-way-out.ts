import { isIP, Socket } from 'node:net';

/** Addresses that the tests themselves may use. */
const OWN = new Set(['127.0.0.1', '127.0.0.2', '::1']);

/** Connections that a test has tried to open, and a net below it: none leaves the machine, should the guard fail. */
export class NoWayOut {
  /** Literal addresses and Unix sockets, in the order they were tried; names are looked up first. */
  readonly tried: string[] = [];
  private readonly connect = Socket.prototype.connect;

  constructor() {
    const { connect, tried } = this;
    Socket.prototype.connect = function (this: Socket, ...args: unknown[]) {
      // Node's own callers pass the normalised form, which is an array.
      const [options] = (Array.isArray(args[0]) ? args[0] : args) as [
        { host?: string | null; path?: string | null },
      ];
      const address = options.path || (isIP(options.host ?? '') === 0 ? undefined : options.host);
      if (address) tried.push(address);
      if (address && !OWN.has(address)) {
        const stopped = new Error('a test was about to leave the machine');
        process.nextTick(() => this.destroy(stopped));
        return this;
      }
      return Reflect.apply(connect, this, args) as Socket;
    };
  }

  /** Restores Node's own function. */
  restore(): void {
    Socket.prototype.connect = this.connect;
  }
}
