import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { SampleProcess } from './sample-process.js';

describe('sample 07-senders', () => {
  let sample: SampleProcess;
  beforeAll(() => {
    sample = SampleProcess.start('07-senders');
  });
  afterAll(() => sample.stop());

  it.each([
    ['clerk', /Clerk has a new user, user_1/],
    ['stripe', /Stripe sends invoice\.paid of in_1/],
    ['github', /GitHub has a new issue, "It works"/],
    ['slack', /Slack mentions the app: "<@shop> hello"/],
    ['qstash', /QStash wants a report, message \S+/],
    ['okta', /Okta reports user\.session\.start, signed: false/],
  ])('handles the event of %s, and no changed one', async (name, line) => {
    await sample.printed(line);
    const [answers] = await sample.printed(new RegExp(`^${name}: .*`));

    // Okta signs nothing: the changed event has a known id.
    const changed = name === 'okta' ? '200' : name === 'qstash' ? '400 hash_mismatch' : '401';
    // Clerk sends Standard Webhooks, which are answered as tokens are.
    const accepted = name === 'clerk' ? '204' : '200';
    expect(answers).toContain(`${name}: ${accepted}, with a changed body ${changed}`);
    expect(sample.lines.filter((one) => line.test(one))).toHaveLength(1);
  });
});
