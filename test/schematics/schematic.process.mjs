// Runs the schematic of the built package outside of Jest, whose CommonJS mode cannot load its ES modules on Node 20.
import { HostTree } from '@angular-devkit/schematics';
import { SchematicTestRunner } from '@angular-devkit/schematics/testing/index.js';
import { fileURLToPath } from 'node:url';

const COLLECTION = fileURLToPath(new URL('../../lib/schematics/collection.json', import.meta.url));

process.on('message', (call) => void run(call));

async function run({ files, options }) {
  const runner = new SchematicTestRunner('nestjs-webhook-token', COLLECTION);
  const said = [];
  runner.logger.subscribe(({ message }) => said.push(message));
  const tree = new HostTree();
  for (const [path, content] of Object.entries(files)) tree.create(path, content);
  try {
    const after = await runner.runSchematic('nest-add', options, tree);
    const contents = after.files.map((path) => [path.slice(1), after.readText(path)]);
    const tasks = runner.tasks.map(({ name }) => name);
    process.send({ files: Object.fromEntries(contents), said: said.join('\n'), tasks });
  } catch (error) {
    process.send({ error: error.message });
  }
}
