import { randomUUID } from 'node:crypto';
import { mkdir, open, readdir, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { WebhookPayloadError } from '../errors/webhook.error.js';
import { SpooledBody } from './spooled-body.js';

/** Where large bodies are kept while they are verified and handled. */
export interface WebhookSpoolOptions {
  /** Bytes above which a body goes to a file; default 1048576 (1 MiB). */
  readonly above?: number | undefined;
  /** Where the files lie; made where it does not exist. Default: the system's directory for temporary files. */
  readonly directory?: string | undefined;
  /** Bytes that the files of this receiver may take at once; beyond it senders get 503. Default 1073741824 (1 GiB). */
  readonly maxBytes?: number | undefined;
}

/** The options, filled. */
interface ResolvedSpoolOptions {
  readonly above: number;
  readonly directory: string | undefined;
  readonly maxBytes: number;
}

/** Bytes of all bodies together that gather in memory before they are written, and of one body at least and at most. */
const GATHERING = { together: 4_194_304, least: 32_768, most: 262_144 };
const PREFIX = 'nestjs-webhook-token-';
const SUFFIX = '.body';

/**
 * Keeps bodies that are too large for memory in temporary files, readable by this user alone, and bounds what they take.
 *
 * Nothing of a body is handed out before the whole of it is verified. A file loses its name as soon as it is open, so that
 * a crash leaves nothing; where the system does not allow that, the next start removes it.
 */
export class BodySpool {
  readonly above: number;
  private readonly directory: string;
  private readonly ownDirectory: boolean;
  private readonly maxBytes: number;
  private taken = 0;
  /** Bodies that have a file, or are about to. */
  private bodies = 0;

  constructor({ above, directory, maxBytes }: ResolvedSpoolOptions) {
    this.above = above;
    this.ownDirectory = directory !== undefined;
    this.directory = directory === undefined ? tmpdir() : resolve(directory);
    this.maxBytes = maxBytes;
  }

  /**
   * Bytes of one body that gather before they are written. Large writes are cheap; but what all bodies gather is taken
   * in, and digested, in one turn of the event loop, and so they get less of it the more of them there are.
   */
  get writeAt(): number {
    const { together, least, most } = GATHERING;
    return Math.min(most, Math.max(least, together / (this.bodies + 1)));
  }

  /**
   * Opens a file for one body.
   *
   * @throws {@link WebhookPayloadError} `spool_unavailable`
   */
  async begin(): Promise<SpoolRoom> {
    this.bodies++;
    const room = new SpoolRoom(this);
    const path = join(this.directory, `${PREFIX}${process.pid}-${randomUUID()}${SUFFIX}`);
    try {
      if (this.ownDirectory) await mkdir(this.directory, { recursive: true, mode: 0o700 });
      const file = await open(path, 'wx+', 0o600);
      const name = await unlink(path).then(
        () => undefined,
        () => path,
      );
      room.body = new SpooledBody(file, name, () => {
        this.bodies--;
        room.giveBack();
      });
      return room;
    } catch (cause) {
      this.bodies--;
      throw unavailable('no file can be opened for it', cause);
    }
  }

  /** Removes what a process that is gone has left behind. */
  async sweep(): Promise<void> {
    const names = await readdir(this.directory).catch((): string[] => []);
    for (const name of names) {
      const pid = ownerOf(name);
      if (pid === undefined || isAlive(pid)) continue;
      await unlink(join(this.directory, name)).catch(() => {});
    }
  }

  /** @internal */
  take(bytes: number): void {
    if (this.taken + bytes > this.maxBytes) {
      throw unavailable(`${this.maxBytes} bytes of other bodies are being handled`);
    }
    this.taken += bytes;
  }

  /** @internal */
  giveBack(bytes: number): void {
    this.taken -= bytes;
  }
}

/** One body's share of the spool. */
export class SpoolRoom {
  body!: SpooledBody;
  private taken = 0;

  constructor(private readonly spool: BodySpool) {}

  /** Makes sure that so many bytes fit, counted from the body's beginning. */
  reserve(bytes: number): void {
    if (bytes <= this.taken) return;
    this.spool.take(bytes - this.taken);
    this.taken = bytes;
  }

  /** Writes behind what is there. */
  async append(chunks: readonly Buffer[]): Promise<void> {
    try {
      await this.body.append(chunks);
    } catch (cause) {
      throw unavailable('its file cannot be written', cause);
    }
  }

  giveBack(): void {
    this.spool.giveBack(this.taken);
    this.taken = 0;
  }
}

function unavailable(why: string, cause?: unknown): WebhookPayloadError {
  return new WebhookPayloadError(
    'spool_unavailable',
    `a body of this size cannot be kept now: ${why}`,
    { cause },
  );
}

function ownerOf(name: string): number | undefined {
  if (!name.startsWith(PREFIX) || !name.endsWith(SUFFIX)) return undefined;
  const pid = Number.parseInt(name.slice(PREFIX.length), 10);
  return Number.isInteger(pid) ? pid : undefined;
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // Of another user, and so there.
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
