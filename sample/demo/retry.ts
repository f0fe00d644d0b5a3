import { faultsAmong, type Act } from './act.js';

/** A handler's failure makes the sender repeat the event. */
export const RETRY: Act = {
  title: 'A handler fails, so the publisher repeats the event.',
  async play({ publisher, receiver }) {
    const sent = await publisher.ask('send', 'invoice.paid');
    const skill = sent.status === 'scheduled' ? 'runsUntilHandled' : 'runsFor';
    const runs = await receiver.ask(skill, sent.id);
    const [first, second] = runs;
    return {
      sent: `invoice.paid by ${first?.method}, and again soon after`,
      answered: `${sent.statusCode}, so the event is ${sent.status} again`,
      outcome: 'the second attempt was handled: same event id, another token with a jti of its own',
      faults: faultsAmong([
        [sent.statusCode === 500, 'the failure was not answered 500'],
        [sent.status === 'scheduled', 'no second attempt was scheduled'],
        [runs.length === 2, `the handler ran ${runs.length} times`],
        [first?.succeeded === false && second?.succeeded === true, 'it did not fail, then succeed'],
        [first?.jti !== second?.jti, 'both attempts carried one jti'],
        [second?.digest === sent.digest, 'the data arrived changed'],
      ]),
    };
  },
};
