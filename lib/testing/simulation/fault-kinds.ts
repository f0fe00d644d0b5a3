/** Kinds of faults, each with the share of its points at which it happens in a run that uses it. A run uses half of them. */
export const FAULT_KINDS = {
  // The network between publishers and receivers
  delay: 0.1,
  loss: 0.06,
  reset: 0.08,
  'lost answer': 0.08,
  duplicate: 0.2,
  partition: 0.3,
  // Stores and their servers
  'store error': 0.03,
  'store reply lost': 0.03,
  'store slow': 0.03,
  'store outage': 0.3,
  // Processes
  kill: 0.015,
  stall: 0.015,
  'clock jump': 0.01,
  // The application
  'handler fails': 0.15,
  'handler is slow': 0.25,
} as const;

export type FaultKind = keyof typeof FAULT_KINDS;
