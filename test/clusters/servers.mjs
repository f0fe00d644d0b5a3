// Starts servers for a trial from the programs of the operating system, on free ports and in a directory of their own.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, chown, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { existsSync, readdirSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';

const execute = promisify(execFile);
/** Milliseconds within which a server must answer. */
const START = 20_000;

const LIBRARIES = '/usr/lib/postgresql';

/** Finds a program, also where Debian keeps those of PostgreSQL. */
export function program(name) {
  const versions = existsSync(LIBRARIES) ? readdirSync(LIBRARIES).toSorted().toReversed() : [];
  const folders = [
    ...(process.env.PATH ?? '').split(delimiter),
    '/usr/sbin',
    ...versions.map((version) => join(LIBRARIES, version, 'bin')),
  ];
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
}

/** Ports below those of outgoing connections, for servers that start later. */
export async function freePorts(count) {
  const ports = new Set();
  while (ports.size < count) {
    // The bus of a Redis Cluster listens 10,000 above.
    const port = 15_000 + Math.floor(Math.random() * 7_000);
    if (!(await isTaken(port)) && !(await isTaken(port + 10_000))) ports.add(port);
  }
  return [...ports];
}

async function isTaken(port) {
  const server = createServer().listen(port, '127.0.0.1');
  try {
    await once(server, 'listening');
  } catch {
    return true;
  }
  server.close();
  await once(server, 'close');
  return false;
}

/** Processes and files of one trial, removed together. */
export class Workshop {
  #running = new Set();
  #disks = [];
  #accounts;

  static async open() {
    const workshop = new Workshop();
    workshop.directory = await mkdtemp(join(tmpdir(), 'webhooks-cluster-'));
    // PostgreSQL and PgBouncer refuse to run as root.
    workshop.#accounts = process.getuid?.() === 0 ? await accountOf('postgres') : {};
    await chmod(workshop.directory, 0o755);
    return workshop;
  }

  /** @returns a directory that the servers may write to */
  async folder(name) {
    const path = join(this.directory, name);
    await mkdir(path, { mode: 0o700 });
    const { uid, gid } = this.#accounts;
    if (uid !== undefined) await chown(path, uid, gid);
    return path;
  }

  /** @returns a file system of its own in memory, which can be filled */
  async smallDisk(name, megabytes) {
    const path = await this.folder(name);
    const { uid, gid } = this.#accounts;
    const options = [`size=${megabytes}m`, 'mode=0700', `uid=${uid}`, `gid=${gid}`].join(',');
    await execute(program('mount'), ['-t', 'tmpfs', '-o', options, 'tmpfs', path]);
    this.#disks.push(path);
    return path;
  }

  async file(folder, name, lines) {
    const path = join(folder, name);
    await writeFile(path, `${lines.join('\n')}\n`);
    // Sentinel rewrites its own.
    await chmod(path, 0o666);
    return path;
  }

  run(name, parameters) {
    const child = spawn(program(name), parameters, { stdio: 'ignore', ...this.#accounts });
    this.#running.add(child);
    return child;
  }

  /** Runs a program to its end. */
  async execute(name, parameters) {
    const { stdout } = await execute(program(name), parameters, this.#accounts);
    return stdout;
  }

  async close() {
    await Promise.all([...this.#running].map((child) => kill(child)));
    // A process of a killed PostgreSQL may still be ending, with files open.
    for (const path of this.#disks) await execute(program('umount'), ['--lazy', path]);
    await rm(this.directory, { recursive: true, force: true });
  }
}

async function accountOf(user) {
  const [{ stdout: uid }, { stdout: gid }] = await Promise.all(
    ['-u', '-g'].map((flag) => execute('id', [flag, user])),
  );
  return { uid: Number(uid), gid: Number(gid) };
}

export async function kill(child, signal = 'SIGKILL') {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  if (child.kill(signal)) await ended;
}

/** Repeats a check until it holds. */
export async function until(check, what) {
  const deadline = Date.now() + START;
  for (;;) {
    if (await check().catch(() => false)) return;
    if (Date.now() > deadline) throw new Error(`${what} did not start within ${START} ms.`);
    await sleep(100);
  }
}

/** An address whose connections go to a server that can be replaced, or to one of several. */
export class Address {
  #server;
  #sockets = new Set();
  #swallowing = new WeakSet();
  #isAway = false;
  #turn = 0;
  port;
  /** Ports of the servers that take connections, in turn. */
  targets;

  static async open(targets) {
    const address = new Address();
    address.targets = targets;
    address.#server = createServer((near) => address.#forward(near));
    address.#server.listen(0, '127.0.0.1');
    await once(address.#server, 'listening');
    address.port = address.#server.address().port;
    return address;
  }

  close() {
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  /** Swallows all bytes, also of new connections, and closes none, as a host that vanishes does. */
  vanish() {
    this.#isAway = true;
    for (const socket of this.#sockets) this.#swallow(socket);
  }

  /** Lets new connections work; those from before stay silent. */
  recover() {
    this.#isAway = false;
  }

  #swallow(socket) {
    this.#swallowing.add(socket);
    socket.unpipe().resume();
  }

  #forward(near) {
    const { targets } = this;
    const target = targets[this.#turn++ % targets.length];
    if (target === undefined) return near.destroy();
    const far = connect(target, '127.0.0.1');
    for (const [from, to] of [
      [near, far],
      [far, near],
    ]) {
      this.#sockets.add(from);
      from.on('error', () => {});
      from.on('close', () => {
        this.#sockets.delete(from);
        if (!this.#swallowing.has(from)) to.destroy();
      });
      from.pipe(to);
      if (this.#isAway) this.#swallow(from);
    }
  }
}
