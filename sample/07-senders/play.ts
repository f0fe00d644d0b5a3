import { senders } from './senders.js';

/** An event of each sender, with the members that matter here. */
const EVENTS: Readonly<Record<string, { readonly event: string; readonly data: unknown }>> = {
  clerk: { event: 'user.created', data: { id: 'user_1' } },
  stripe: { event: 'invoice.paid', data: { data: { object: { id: 'in_1' } } } },
  github: { event: 'issues.opened', data: { issue: { title: 'It works' } } },
  slack: { event: 'app_mention', data: { event: { text: '<@shop> hello' } } },
  qstash: { event: 'report.due', data: { job: 'report.due' } },
  okta: { event: 'user.session.start', data: { severity: 'INFO' } },
};

/** Sends an event as each sender would, and once more with a changed body. */
export async function play(origin: string): Promise<void> {
  for (const [name, sender] of Object.entries(senders)) {
    const { headers, body } = await sender.sign({ ...EVENTS[name]!, now: Date.now() });
    const send = async (content: Buffer<ArrayBuffer>): Promise<string> => {
      const request = { method: 'POST', headers, body: content };
      const answer = await fetch(`${origin}/webhooks/${name}`, request);
      return `${answer.status} ${answer.headers.get('webhook-error') ?? ''}`.trim();
    };
    const changed = Buffer.from(body.toString().replace(/\}\s*$/, ',"changed":true}'));
    console.log(`${name}: ${await send(body)}, with a changed body ${await send(changed)}`);
  }
}
