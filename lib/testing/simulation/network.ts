import { InMemoryWebhookTransport, type SentWebhook } from '../in-memory-webhook.transport.js';
import type { SimulatedProcess, Slot } from './simulated-process.js';
import { drawOutage, isWithin, mix, never, type Simulation, type Span } from './simulation.js';

export interface ReceivingApplication {
  /** @returns the status of its answer; rejects if the connection was closed */
  receive(webhook: SentWebhook): Promise<number>;
}

export interface NetworkObserver {
  sent?(webhook: SentWebhook): void;
  answered(webhook: SentWebhook, status: number): void;
}

/** The network between publishers and receivers. */
export class Network<App extends ReceivingApplication = ReceivingApplication> {
  private readonly partitions = new Map<string, Span | undefined>();

  /** @param receivers - the slots behind the load balancer of the receiving service */
  constructor(
    readonly simulation: Simulation,
    private readonly receivers: readonly Slot<App>[],
    private readonly observer: NetworkObserver,
  ) {}

  /** Cuts publishers off from receivers for a while. */
  partition(publishers: readonly Slot[]): void {
    for (const from of publishers) {
      for (const to of this.receivers) {
        const link = `${from.name}-${to.name}`;
        this.partitions.set(link, drawOutage(this.simulation, 'partition', link));
      }
    }
  }

  transportOf(process: SimulatedProcess): InMemoryWebhookTransport {
    return new InMemoryWebhookTransport((webhook) => this.send(process, webhook));
  }

  /** Sends a request. @returns the status, or the code of a network failure */
  async send(
    process: SimulatedProcess,
    webhook: SentWebhook,
  ): Promise<number | 'ECONNRESET' | 'ECONNREFUSED'> {
    const { simulation, observer } = this;
    const point = process.pointOf('http');
    if (!process.survives(`${point} before`)) return never();
    observer.sent?.(webhook);
    const to = simulation.pick(`${point} to`, this.receivers);
    const link = this.partitions.get(`${process.slot.name}-${to.name}`);
    // The attempt times out.
    if (isWithin(link, simulation.time) || simulation.happens('loss', point)) return never();
    if (simulation.happens('reset', point)) return this.fail(process, point, 'ECONNRESET');
    if (simulation.happens('duplicate', point)) {
      const late = simulation.between(`${point} copy`, 1, 30_000);
      simulation.after(late, undefined, () => void this.arrive(to, webhook, `${point} copy`));
    }
    await this.travel(undefined, `${point} there`);
    const status = await this.arrive(to, webhook, point);
    if (status === undefined) return this.fail(process, point, 'ECONNREFUSED');
    if (simulation.happens('lost answer', point)) return this.fail(process, point, 'ECONNRESET');
    await this.travel(process, `${point} back`);
    simulation.note(process, `gets ${status} for ${webhook.id}`);
    return process.survives(`${point} answered`) ? status : never();
  }

  /** @returns the status; `undefined` if the connection was refused, and never if the process is killed */
  private async arrive(
    slot: Slot<App>,
    webhook: SentWebhook,
    point: string,
  ): Promise<number | undefined> {
    const { process } = slot;
    if (slot.app === undefined) return undefined;
    this.simulation.note(process, `receives ${webhook.method} ${webhook.id} (${point})`);
    const status = await new Promise<number | undefined>((resolve) => {
      this.simulation.after(0, process, () => {
        process.app!.receive(webhook).then(resolve, () => resolve(undefined));
      });
    });
    if (status === undefined) return undefined;
    this.simulation.note(process, `answers ${status} for ${webhook.id}`);
    this.observer.answered(webhook, status);
    return status;
  }

  private async fail<Code>(process: SimulatedProcess, point: string, code: Code): Promise<Code> {
    await this.travel(process, `${point} ${String(code)}`);
    return code;
  }

  private async travel(process: SimulatedProcess | undefined, point: string): Promise<void> {
    const { simulation } = this;
    const slow = simulation.happens('delay', point)
      ? simulation.between(`${point} slow`, 200, 40_000)
      : 0;
    const ms = 1 + (mix(point, simulation.seed) % 40) + slow;
    await new Promise<void>((resolve) => void simulation.after(ms, process, resolve));
  }
}
