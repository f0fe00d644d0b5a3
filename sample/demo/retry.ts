import { failuresAmong, type Act } from './act.js';

/** The publisher retries an event whose handler fails. */
export const RETRY: Act = {
  title: 'A handler fails, so the publisher retries.',
  async play({ publisher, receiver }) {
    const sent = await publisher.ask('send', 'invoice.paid');
    const skill = sent.status === 'scheduled' ? 'runsUntilHandled' : 'runsFor';
    const runs = await receiver.ask(skill, sent.id);
    const [first, second] = runs;
    return {
      sent: `invoice.paid by ${first?.method}, and again soon after`,
      answered: `${sent.statusCode}, so the event is ${sent.status} again`,
      outcome: 'the second attempt was handled: same event id, new token with its own jti',
      failures: failuresAmong([
        [sent.statusCode === 500, 'the failure was not answered with 500'],
        [sent.status === 'scheduled', 'no second attempt was scheduled'],
        [runs.length === 2, `the handler ran ${runs.length} times`],
        [first?.succeeded === false && second?.succeeded === true, 'it did not fail, then succeed'],
        [first?.jti !== second?.jti, 'both attempts had the same jti'],
        [second?.digest === sent.digest, 'the data was changed'],
      ]),
    };
  },
};
