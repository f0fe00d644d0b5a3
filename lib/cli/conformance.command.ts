import { USAGE, type CommandIo } from './command.interface.js';
import { readConformanceCall, SECRET_VARIABLE } from './conformance/conformance-options.js';
import { reportJson, reportText } from './conformance/conformance-report.js';
import { runConformance, type ConformanceRun } from './conformance/conformance.runner.js';
import { ProbeContext } from './conformance/probe.context.js';
import { CONFORMANCE_PROFILES, PROBE_GROUPS } from './conformance/probe.interface.js';

const FAILED = 1;
const UNREACHABLE = 3;

const HELP = `Usage: nestjs-webhook-token conformance <url> --issuer <iss> [options]

Sends requests to a receiver, right ones and wrong ones, and says which rules it keeps. The right
ones are events to it, and are handled: use a receiver for tests.

  --issuer <iss>         who the receiver trusts; required
  --secret <text>        the shared secret; others on this machine can see it, so better:
  --secret-file <file>   a file with it; or the environment variable ${SECRET_VARIABLE}
  --key <file>           a private key (PEM) in place of a secret, with --alg
  --alg <name>           HS256 (default), HS384, HS512, RS256, PS256, ES256, ES384, EdDSA
  --kid <name>           the key's name, where the receiver knows it by one
  --audience <aud>       who the receiver is, where it wants to be named
  --event <name>         order.created, unless given; best one whose data is not validated
  --profile <name>       ${CONFORMANCE_PROFILES.join(', ')}
  --only <group>         ${PROBE_GROUPS.join(', ')}
  --timeout <duration>   for each answer; 5s, unless given
  --allow-http           for http:// to another host than this one
  --insecure-ca <file>   trust this authority (PEM) in place of the public ones
  --json                 print JSON

Exit code: 0 all musts hold, 1 one does not, 2 wrong usage, 3 the receiver cannot be reached.
`;

/**
 * Holds a receiver against the rules of the protocol, from outside.
 *
 * @returns 0 when every `must` holds, 1 when one does not, 2 for a wrong call, 3 when nobody answers
 */
export async function run(args: readonly string[], io: CommandIo): Promise<number> {
  const call = readConformanceCall(args, io.env);
  switch (call.kind) {
    case 'help':
      io.stdout.write(HELP);
      return 0;
    case 'faults':
      io.stderr.write(
        `${call.faults.join('\n')}\n"nestjs-webhook-token conformance --help" lists the options.\n`,
      );
      return USAGE;
    case 'run': {
      const context = new ProbeContext({ ...call.settings, now: Date.now });
      const found = await runConformance(context, call.target, call.only);
      const subject = { url: call.target.url.href, profile: context.profile };
      io.stdout.write(
        call.json
          ? `${JSON.stringify(reportJson(subject, found), null, 2)}\n`
          : reportText(subject, found),
      );
      if (found.end !== 'complete') io.stderr.write(`${adviceOn(found)}\n`);
      return exitCode(found);
    }
  }
}

function adviceOn({ end, reason, clockSkew = 0 }: ConformanceRun): string {
  if (end === 'unreachable') {
    return `The receiver cannot be reached: ${reason}. Check the URL, and --timeout.`;
  }
  const clock = Math.abs(clockSkew) > 1 ? ` Its clock differs by ${clockSkew} s.` : '';
  return `Stopped: ${reason}, so the other refusals would say nothing.${clock} Check URL, secret, issuer, audience, kid and profile, that the clocks agree, and that the event's data is not validated.`;
}

function exitCode({ end, results }: ConformanceRun): number {
  if (end === 'unreachable') return UNREACHABLE;
  const failed = results.some(
    ({ verdict, probe }) => verdict === 'fail' || (verdict === 'error' && probe.level === 'must'),
  );
  return end === 'refused' || failed ? FAILED : 0;
}
