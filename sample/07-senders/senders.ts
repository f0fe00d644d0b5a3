import {
  github,
  okta,
  qstash,
  slack,
  standardWebhooks,
  stripe,
  type WebhookSender,
} from 'nestjs-webhook-token/senders';

/** Who sends here, by the name of its receiver. */
export const senders: Readonly<Record<string, WebhookSender>> = {
  clerk: standardWebhooks({ secret: process.env.CLERK_SECRET! }),
  stripe: stripe({ secret: process.env.STRIPE_SECRET! }),
  github: github({ secret: process.env.GITHUB_SECRET! }),
  slack: slack({ secret: process.env.SLACK_SECRET! }),
  qstash: qstash({
    secret: process.env.QSTASH_SECRET!,
    // As QStash knows it, which behind a proxy is not what arrives in `Host`.
    url: 'https://shop.example/webhooks/qstash',
    // QStash names no events.
    event: ({ data }) => (data as { job: string }).job,
  }),
  okta: okta({ value: process.env.OKTA_VALUE! }),
};
