<?php // Receives webhooks without a library:  WEBHOOK_SECRET=… WEBHOOK_ISSUER=… php -S 127.0.0.1:8080 receive.php
const BEARER = '/\ABearer (([\w-]+)\.([\w-]+))\.([\w-]{42}[AEIMQUYcgkosw048])\z/i';
const HASH = '/\A(sha256|sha384|sha512|sha3-256|sha3-384|sha3-512):([0-9a-fA-F]+)\z/';

function demand(bool $condition): void {
    if (!$condition) throw new Exception('refused');
}

function decode(string $segment): object {
    $json = base64_decode(strtr($segment, '-_', '+/'), true);
    $value = json_decode($json, false, 67, JSON_THROW_ON_ERROR); // 64 levels of data
    // json_decode keeps the last of repeated members, so the colons outside strings are counted.
    $rest = preg_replace('/"(?:[^"\\\\]|\\\\.)*+"/', '', $json);
    demand(substr_count($rest, ':') === members($value));
    return $value;
}

function members(mixed $value): int {
    if (!is_object($value) && !is_array($value)) return 0;
    $own = is_object($value) ? count((array) $value) : 0;
    return $own + array_sum(array_map('members', array_values((array) $value)));
}

function verify(string $authorization): object {
    demand(preg_match(BEARER, $authorization, $part) === 1);
    $mac = hash_hmac('sha256', $part[1], getenv('WEBHOOK_SECRET'), true);
    demand(hash_equals(rtrim(strtr(base64_encode($mac), '+/', '-_'), '='), $part[4]));
    [$header, $claims, $now] = [decode($part[2]), decode($part[3]), microtime(true)];
    demand($header->alg === 'HS256' && preg_match('#\A(application/)?jwt\z#i', $header->typ) === 1);
    demand(!array_intersect_key((array) $header, ['crit' => 1, 'b64' => 1, 'zip' => 1]));
    demand($claims->iss === getenv('WEBHOOK_ISSUER') && !property_exists($claims, 'aud'));
    $txn = property_exists($claims, 'txn') ? $claims->txn : $claims->jti;
    foreach ([$claims->jti, $txn] as $id)
        demand(is_string($id) && preg_match('/\A\P{Cc}{1,255}\z/u', $id) === 1);
    foreach ($times = [$claims->iat, property_exists($claims, 'nbf') ? $claims->nbf : 0, $claims->exp] as $time)
        demand(is_int($time) || is_float($time));
    [$iat, $nbf, $exp] = $times;
    demand($iat < $exp && $exp <= $iat + 3600 && max($iat, $nbf) - 60 <= $now && $now < $exp + 60);
    demand(is_string($claims->webhook->event));
    demand(preg_match('/\A[\w-]+(\.[\w-]+)+\z/', $claims->webhook->event) === 1);
    demand(!property_exists($claims->webhook, 'data') || is_object($claims->webhook->data));
    return $claims;
}

function payload(object $webhook, string $method, string $body): mixed {
    if ($body === '' && !property_exists($webhook, 'hash')) return $webhook->data ?? null;
    demand($method === 'POST' && preg_match(HASH, $webhook->hash, $part) === 1);
    demand(hash_equals(hash($part[1], $body), strtolower($part[2])));
    $isJson = $body !== '' && str_contains($_SERVER['CONTENT_TYPE'] ?? '', 'json');
    return $isJson ? json_decode($body, false, 65, JSON_THROW_ON_ERROR) : $body;
}

function answer(int $status, string ...$headers): never {
    foreach (['Cache-Control: no-store', ...$headers] as $header) header($header);
    http_response_code($status);
    exit;
}

set_error_handler(fn ($level, $message) => throw new ErrorException($message));
$method = $_SERVER['REQUEST_METHOD'];
if (!in_array($method, ['HEAD', 'POST'], true)) answer(405, 'Allow: HEAD, POST');
try { $claims = verify($_SERVER['HTTP_AUTHORIZATION'] ?? ''); }
catch (Throwable) { answer(401, 'WWW-Authenticate: Bearer realm="webhooks"'); }
try { $data = payload($claims->webhook, $method, $method === 'POST' ? file_get_contents('php://input') : ''); }
catch (Throwable) { answer(400); }
// In production: a unique column, written in the transaction of the effect.
$handled = sys_get_temp_dir() . '/webhook-' . hash('sha256', $claims->txn ?? $claims->jti);
$content = hash('sha256', serialize($data));
if (is_file($handled)) answer(file_get_contents($handled) === $content ? 204 : 401, 'Webhook-Duplicate: true');
error_log($claims->webhook->event . ' ' . json_encode($data)); // your handler
file_put_contents($handled, $content);
answer(204);
