import { signWebhookToken, verifyWebhookToken } from 'nestjs-webhook-token/token';
import { TestClock, signWebhook } from 'nestjs-webhook-token/testing';

const key = 'a-shared-secret-of-32-bytes-or-more';
const token = await signWebhookToken({ event: 'a.b' }, { issuer: 'i', key });
const { header } = await verifyWebhookToken(token, { issuers: [{ issuer: 'i', secret: key }] });
console.log(`esm ${header.alg} ${typeof TestClock} ${typeof signWebhook}`);
