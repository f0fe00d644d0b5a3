import { deliveryTables } from './delivery.step.js';
import { endpointTable } from './endpoint.step.js';
import type { MigrationStep } from './migration-step.interface.js';
import { replayTable } from './replay.step.js';

/** Every step of the schema, in order. A new one goes to the end. */
export function migrationSteps(schema: string): readonly MigrationStep[] {
  return [
    { version: 1, name: 'replay', statements: replayTable(schema) },
    { version: 2, name: 'endpoint', statements: endpointTable(schema) },
    { version: 3, name: 'delivery', statements: deliveryTables(schema) },
  ];
}
