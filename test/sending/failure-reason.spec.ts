import { describe, expect, it } from '@jest/globals';
import { AxiosError } from 'axios';
import { WebhookDestinationBlockedError } from 'nestjs-webhook-token';
import { transportFailure } from '../../lib/sending/attempt-result.js';

describe('transportFailure', () => {
  it.each([
    ['ENOTFOUND', 'dns'],
    ['EAI_AGAIN', 'dns'],
    ['ECONNREFUSED', 'connection_refused'],
    ['ECONNRESET', 'connection_reset'],
    ['EPIPE', 'connection_reset'],
    ['ETIMEDOUT', 'timeout'],
    ['EHOSTUNREACH', 'network'],
    ['EMFILE', 'too_many_open_files'],
    ['ENFILE', 'too_many_open_files'],
    ['EPROTO', 'tls'],
    ['CERT_HAS_EXPIRED', 'tls'],
    ['DEPTH_ZERO_SELF_SIGNED_CERT', 'tls'],
    ['UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'tls'],
    ['UNABLE_TO_DECODE_ISSUER_PUBLIC_KEY', 'tls'],
    ['SELF_SIGNED_CERT_IN_CHAIN', 'tls'],
    ['CERT_CHAIN_TOO_LONG', 'tls'],
    ['CRL_HAS_EXPIRED', 'tls'],
    ['ERROR_IN_CERT_NOT_BEFORE_FIELD', 'tls'],
    ['INVALID_CA', 'tls'],
    ['INVALID_PURPOSE', 'tls'],
    ['PATH_LENGTH_EXCEEDED', 'tls'],
    ['HOSTNAME_MISMATCH', 'tls'],
    ['UNSPECIFIED', 'tls'],
    ['ERR_TLS_CERT_ALTNAME_INVALID', 'tls'],
    ['ERR_SSL_WRONG_VERSION_NUMBER', 'tls'],
    ['HPE_INVALID_CONSTANT', 'malformed_response'],
    ['HPE_HEADER_OVERFLOW', 'response_too_large'],
    ['ESOMETHING', 'network'],
  ])('maps %s to %s, also as a cause and in an AggregateError', (code, reason) => {
    const bare = Object.assign(new Error('x'), { code });
    const gathered = new AggregateError([bare, new Error('y')]);

    expect(transportFailure(bare)).toBe(reason);
    expect(transportFailure(new AxiosError('x', code))).toBe(reason);
    expect(transportFailure(new Error('x', { cause: bare }))).toBe(reason);
    expect(transportFailure(gathered)).toBe(reason);
    expect(transportFailure(AxiosError.from(gathered))).toBe(reason);
  });

  it('distinguishes the timeout of axios from a connection that the system aborted', () => {
    const aborted = Object.assign(new Error('x'), { code: 'ECONNABORTED', syscall: 'write' });

    expect(transportFailure(new AxiosError('timeout of 50ms exceeded', 'ECONNABORTED'))).toBe(
      'timeout',
    );
    expect(transportFailure(AxiosError.from(aborted))).toBe('network');
  });

  it('finds the refusal of the egress guard at any depth', () => {
    const blocked = new WebhookDestinationBlockedError('10.0.0.1 is private');

    expect(transportFailure(new AxiosError('x', 'ECONNRESET', undefined, undefined))).toBe(
      'connection_reset',
    );
    expect(transportFailure(AxiosError.from(new Error('x', { cause: blocked })))).toBe(
      'destination_blocked',
    );
  });

  it.each([undefined, null, 'text', 7, {}, { code: 7 }, { message: {} }])(
    'accepts %p',
    (thrown) => {
      expect(transportFailure(thrown)).toBe('network');
    },
  );

  it('ends in a cycle of causes', () => {
    const error: Error & { cause?: unknown } = new Error('x');
    error.cause = error;

    expect(transportFailure(error)).toBe('network');
  });
});
