import { KEY_HELP, printResult, runWithArguments } from './arguments.js';
import type { CommandIo } from './command.interface.js';
import { CONFORMANCE_OPTIONS, readConformanceCall } from './conformance/conformance-options.js';
import { reportJson, reportText } from './conformance/conformance-report.js';
import { runConformance, type ConformanceRun } from './conformance/conformance.runner.js';
import { ProbeContext } from './conformance/probe.context.js';
import { CONFORMANCE_PROFILES, PROBE_GROUPS } from './conformance/probe.interface.js';

const FAILED = 1;
const UNREACHABLE = 3;

export const help = `Usage: nestjs-webhook-token conformance <url> --issuer <iss> [options]

Sends valid and invalid requests to a receiver and reports which rules of the protocol it follows.
Valid requests are handled as real events: use a test receiver. It must trust the issuer.

${KEY_HELP}
  --audience <aud>       audience of the receiver, if it has one
  --event <name>         default webhook.conformance; choose an event whose data is not validated
  --profile <name>       wire format: ${CONFORMANCE_PROFILES.join(', ')}
  --only <group>         run one group: ${PROBE_GROUPS.join(', ')}
  --timeout <duration>   for each answer; default 5s
  --allow-http           allow http:// to hosts other than this machine
  --insecure-ca <file>   trust this certificate authority (PEM) instead of the public ones
  --json                 print JSON

Exit code: 0 every required probe passes, 1 one fails, 2 wrong usage, 3 the receiver is unreachable.
`;

export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  const command = { name: 'conformance', help, options: CONFORMANCE_OPTIONS };
  return runWithArguments(command, args, io, async (given) => {
    const { settings, target, only } = await readConformanceCall(given, io.env);
    const context = new ProbeContext({ ...settings, now: Date.now });
    const found = await runConformance(context, target, only);
    const subject = { url: target.url.href, profile: context.profile };
    printResult(io, given.values.json, reportJson(subject, found), reportText(subject, found));
    if (found.end !== 'complete') io.stderr.write(`${adviceOn(found)}\n`);
    return exitCode(found);
  });
}

function adviceOn({ end, reason, clockSkew = 0 }: ConformanceRun): string {
  if (end === 'unreachable') {
    return `The receiver is unreachable: ${reason}. Check the URL and --timeout.`;
  }
  const clock = Math.abs(clockSkew) > 1 ? ` Its clock differs by ${clockSkew} s.` : '';
  return `Stopped: ${reason}. A receiver that refuses a valid event cannot be tested.${clock} Check URL, secret, issuer, audience, kid, profile and the clocks. If it refuses the event or its data, pass --event with an event that it accepts and does not validate.`;
}

function exitCode({ end, results }: ConformanceRun): number {
  if (end === 'unreachable') return UNREACHABLE;
  const failed = results.some(
    ({ verdict, probe }) => verdict === 'fail' || (verdict === 'error' && probe.level === 'must'),
  );
  return end === 'refused' || failed ? FAILED : 0;
}
