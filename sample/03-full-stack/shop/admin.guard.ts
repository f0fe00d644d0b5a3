import { timingSafeEqual } from 'node:crypto';
import {
  Injectable,
  UnauthorizedException,
  type CanActivate,
  type ExecutionContext,
} from '@nestjs/common';
import type { Request, Response } from 'express';

/** Basic authentication, so that the sample needs no users. */
@Injectable()
export class AdminGuard implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const http = context.switchToHttp();
    const given = Buffer.from(http.getRequest<Request>().headers.authorization ?? '');
    const credentials = Buffer.from(`admin:${process.env.ADMIN_PASSWORD}`).toString('base64');
    const expected = Buffer.from(`Basic ${credentials}`);
    if (given.length === expected.length && timingSafeEqual(given, expected)) return true;
    http.getResponse<Response>().setHeader('WWW-Authenticate', 'Basic realm="shop"');
    throw new UnauthorizedException();
  }
}
