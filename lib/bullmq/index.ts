/** A durable delivery queue on Redis, through BullMQ. */
export { BullMqDeliveryQueue } from './bullmq-delivery.queue.js';
export type { BullMqDeliveryQueueOptions } from './bullmq-delivery.queue.js';
