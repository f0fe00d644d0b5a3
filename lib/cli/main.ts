#!/usr/bin/env node
import { runCommandLine } from './command-line.js';

const { stdin, stdout, stderr, env } = process;
// The code is only set: what was printed may still be on its way into a pipe.
process.exitCode = await runCommandLine(process.argv.slice(2), { stdin, stdout, stderr, env });
