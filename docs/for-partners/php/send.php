<?php // Sends an event without a library:  WEBHOOK_SECRET=… WEBHOOK_ISSUER=… php send.php URL EVENT JSON

function base64url(string $bytes): string {
    return rtrim(strtr(base64_encode($bytes), '+/', '-_'), '=');
}

/** One attempt. Repeat it later with the same id and bytes until it returns true. */
function deliver(string $url, string $event, string $body, string $id): bool {
    $data = json_decode($body, false, 64, JSON_THROW_ON_ERROR);
    $inline = is_object($data) && strlen(json_encode($data)) <= 4800;
    $webhook = ['event' => $event];
    $webhook += $inline ? ['data' => $data] : ['hash' => 'sha256:' . hash('sha256', $body)];
    $now = time();
    $claims = ['iss' => getenv('WEBHOOK_ISSUER'), 'iat' => $now, 'nbf' => $now, 'exp' => $now + 300,
        'jti' => bin2hex(random_bytes(16)), 'txn' => $id, 'webhook' => $webhook];
    $input = base64url('{"alg":"HS256","typ":"JWT"}') . '.' . base64url(json_encode($claims));
    $token = $input . '.' . base64url(hash_hmac('sha256', $input, getenv('WEBHOOK_SECRET'), true));
    $options = ['method' => $inline ? 'HEAD' : 'POST', 'timeout' => 15, 'follow_location' => 0,
        'header' => ["Authorization: Bearer $token", 'Content-Type: application/json'],
        'ignore_errors' => true];
    $options += $inline ? [] : ['content' => $body];
    if (file_get_contents($url, false, stream_context_create(['http' => $options])) === false) return false;
    $status = (int) substr($http_response_header[0], 9, 3);
    return $inline ? in_array($status, [202, 204], true) : $status >= 200 && $status < 300;
}

[, $url, $event, $body] = $argv;
exit(deliver($url, $event, $body, bin2hex(random_bytes(16))) ? 0 : 1);
