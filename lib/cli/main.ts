#!/usr/bin/env node
import { runCommandLine } from './command-line.js';

const { stdin, stdout, stderr, env } = process;
// Set the exit code instead of exiting, so that output to a pipe is not cut off.
process.exitCode = await runCommandLine(process.argv.slice(2), { stdin, stdout, stderr, env });
