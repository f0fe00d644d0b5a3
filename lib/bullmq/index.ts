/** A durable delivery queue on Redis, through BullMQ. */
export { BullMqQueue } from './bullmq.queue.js';
