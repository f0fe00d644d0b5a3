// Uses the framework-free core from CommonJS. Nest is installed only as far as npm adds peer dependencies.
const { createTokenSigner, createTokenVerifier, digest } = require('nestjs-webhook-token/token');

const key = 'a-shared-secret-of-32-bytes-or-more';
const token = createTokenSigner({ issuer: 'i', key }).sign({ event: 'a.b', data: { n: 1 } });
const { claims } = createTokenVerifier({ issuers: [{ issuer: 'i', secret: key }] }).verify(token);
console.log(`commonjs ${claims.webhook.event} ${digest('sha3-256', Buffer.from('x')).length}`);
