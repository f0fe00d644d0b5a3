import {
  All,
  applyDecorators,
  HttpCode,
  UseFilters,
  UseGuards,
  UseInterceptors,
} from '@nestjs/common';
import { readOptions } from '../../options/read-options.js';
import { object, optional, text } from '../../options/rules.js';
import { markRoute } from '../handlers/handler-metadata.js';
import { WebhookGuard } from '../webhook.guard.js';
import { WebhookExceptionFilter, WebhookInterceptor } from '../webhook-route.enhancers.js';

/**
 * Makes a method a webhook route: HEAD and POST, guarded, each event handled once, answered 204 when the method's promise resolves.
 * Any other method is rejected with 405. Path parameters, versions and other decorators work as on any route; put filters of your
 * own above this decorator, so that they are asked before the receiver's.
 *
 * @param path - as for `@Post()`; default: the controller's own path
 * @param options.receiver - name of the receiver whose rules apply; default: the only one, or `'default'`
 */
export function WebhookRoute(
  path?: string | string[],
  options: { readonly receiver?: string | undefined } = {},
): MethodDecorator {
  readOptions(ROUTE_OPTIONS, options, '@WebhookRoute()');
  return applyDecorators(
    mark(options),
    // One method can have one route only, and the guard refuses all but HEAD and POST.
    All(path),
    HttpCode(204),
    UseGuards(WebhookGuard),
    UseInterceptors(WebhookInterceptor),
    UseFilters(WebhookExceptionFilter),
  );
}

const ROUTE_OPTIONS = object<{ readonly receiver?: string | undefined }>()({
  receiver: optional(text()),
});

function mark(options: { readonly receiver?: string | undefined }): MethodDecorator {
  return (_target, _key, { value }) => markRoute(value as object, options);
}
