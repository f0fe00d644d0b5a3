/** OpenAPI 3.1 documents: receivers and events, with `@nestjs/swagger` or without. */
export { addWebhooks } from './add-webhooks.js';
export { generateEventDocs } from './event-docs.js';
export type { OpenApiDocument } from './event-docs.js';
