// Prints llms.txt: what this package is, the rules for coding agents, and an index of the documentation.
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..');
const BASE = 'https://raw.githubusercontent.com/nestjs-webhook-token/nestjs-webhook-token/main/';
const RULES = 'docs/guides/agents.md';
const SECTIONS = {
  Guides: 'docs/guides',
  Reference: 'docs/reference',
  Explanation: 'docs/explanation',
  'For partners': 'docs/for-partners',
};

const read = (path) => readFileSync(join(ROOT, path), 'utf8');
const title = (page) => /^# (.+)$/m.exec(page)[1];

/** The headings of a page; for a page without headings, the start of its first sentence, without links. */
function summary(page) {
  const prose = page.replace(/^```[\s\S]*?^```/gm, '').replace(/\[([^\]]+)\]\([^)]+\)/g, '$1');
  const headings = [...prose.matchAll(/^## (.+)$/gm)];
  if (headings.length === 0) return /^(?![#|\s])[^.:]+/m.exec(prose)[0].replaceAll('\n', ' ');
  return headings.map(([, heading]) => heading.replaceAll('`', '')).join('; ');
}

/** Replaces relative links by links to the repository. */
function absolute(page, path) {
  return page.replace(/\]\((?![a-z]+:|#)([^)]+)\)/g, (_, target) => {
    return `](${BASE}${posix.join(posix.dirname(path), target)})`;
  });
}

function index(folder) {
  return readdirSync(join(ROOT, folder))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `${folder}/${name}`)
    .filter((path) => path !== RULES)
    .map((path) => `- [${title(read(path))}](${BASE}${path}): ${summary(read(path))}`)
    .join('\n');
}

const readme = read('README.md');
const rules = absolute(read(RULES), RULES)
  .replace(/^# .+\n+[^#]+/, '')
  .replace(/^## /gm, '### ');
console.log(
  [
    `# ${title(readme)}`,
    `> ${readme.split('\n\n')[1].replaceAll('\n', ' ')}`,
    `## ${title(read(RULES))}`,
    rules.trim(),
    ...Object.entries(SECTIONS).map(([name, folder]) => `## ${name}\n\n${index(folder)}`),
  ].join('\n\n'),
);
