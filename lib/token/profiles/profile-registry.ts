import type { WebhookProfile } from '../webhook-token.constants.js';
import type { ProfileRules } from './profile-rules.interface.js';
import { SWT_DRAFT_00 } from './swt-draft-00.profile.js';
import { SWT_DRAFT_02 } from './swt-draft-02.profile.js';
import { WEBHOOK_TOKEN } from './webhook-token.profile.js';

const RULES: Readonly<Record<WebhookProfile, ProfileRules>> = {
  'webhook-token': WEBHOOK_TOKEN,
  'swt-draft-00': SWT_DRAFT_00,
  'swt-draft-02': SWT_DRAFT_02,
};

/** The rules of a wire format. */
export function rulesOf(profile: WebhookProfile): ProfileRules {
  return RULES[profile];
}
