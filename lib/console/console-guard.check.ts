import { Inject, Injectable, type OnApplicationBootstrap } from '@nestjs/common';
import { ApplicationConfig } from '@nestjs/core';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { CONSOLE_OPTIONS, type ResolvedConsole } from './console-options.js';
import { ConsoleControllers } from './console.controllers.js';
import { ConsoleHandler } from './console.handler.js';

/** Guards that let everyone through. */
const NO_PROTECTION = /^ThrottlerGuard$/;

/** Values of NODE_ENV; a missing one may be production. */
const DEVELOPMENT: ReadonlySet<string | undefined> = new Set(['development', 'test']);

/** Refuses to start if the console has no guard, except in development, where it then answers this machine only. */
@Injectable()
export class ConsoleGuardCheck implements OnApplicationBootstrap {
  constructor(
    @Inject(CONSOLE_OPTIONS) private readonly options: ResolvedConsole,
    private readonly controllers: ConsoleControllers,
    private readonly handler: ConsoleHandler,
    private readonly config: ApplicationConfig,
  ) {}

  onApplicationBootstrap(): void {
    if (this.options.allowUnguarded) return;
    const classes = [
      ...this.controllers.guards.map(classOf),
      ...this.config.getGlobalGuards().map(classOf),
      ...this.config.getGlobalRequestGuards().map(({ metatype }) => metatype),
    ];
    if (classes.some(protects)) return;
    this.handler.isUnguarded = true;
    if (DEVELOPMENT.has(process.env['NODE_ENV'])) return;
    throw new WebhookConfigurationError([
      {
        path: 'WebhookConsoleModule.guards',
        message:
          'no guard protects the console, and anyone could see deliveries; set "guards", or provide an APP_GUARD. Without a guard it starts only with NODE_ENV=development or test, and answers this machine. If something else protects the path, such as a proxy, set allowUnguarded: true',
      },
    ]);
  }
}

function classOf(guard: unknown): unknown {
  return typeof guard === 'function' ? guard : (guard as object).constructor;
}

/** Whether neither the class nor one that it extends is known to let everyone through. */
function protects(guard: unknown): boolean {
  for (let one = guard; typeof one === 'function'; one = Object.getPrototypeOf(one)) {
    if (NO_PROTECTION.test(one.name)) return false;
  }
  return true;
}
