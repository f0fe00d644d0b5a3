# Receives webhooks with PyJWT:  WEBHOOK_SECRET=… WEBHOOK_ISSUER=… python3 receive.py 8080
import hashlib, hmac, json, os, re, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from jwt import PyJWS

SECRET, ISSUER = os.environ['WEBHOOK_SECRET'], os.environ['WEBHOOK_ISSUER']
BEARER = re.compile(r'(?i:bearer) ([\w-]+\.[\w-]+\.[\w-]{42}[AEIMQUYcgkosw048])', re.ASCII)
HASH = re.compile(r'(sha256|sha384|sha512|sha3-256|sha3-384|sha3-512):([0-9a-fA-F]+)')
handled = {}  # in production: a unique column, written in the transaction of the effect

def require(condition):
    if not condition: raise ValueError

def unique(members):
    require(len(dict(members)) == len(members))
    return dict(members)

def verify(authorization):
    token = BEARER.fullmatch(authorization)[1]
    signed = PyJWS().decode_complete(token, SECRET, algorithms=['HS256'])
    header, claims = signed['header'], json.loads(signed['payload'].decode(), object_pairs_hook=unique)
    require(header['typ'].lower() in ('jwt', 'application/jwt'))
    require(not {'crit', 'b64', 'zip'} & header.keys())
    require(claims['iss'] == ISSUER and 'aud' not in claims)
    for id in claims['jti'], claims.get('txn', claims['jti']):
        require(re.fullmatch(r'[^\x00-\x1f\x7f-\x9f]{1,255}', id))
    times = iat, nbf, exp = claims['iat'], claims.get('nbf', 0), claims['exp']
    require(all(type(time) in (int, float) for time in times) and iat < exp <= iat + 3600)
    require(max(iat, nbf) - 60 <= time.time() < exp + 60)
    require(re.fullmatch(r'[\w-]+(\.[\w-]+)+', claims['webhook']['event'], re.ASCII))
    require(isinstance(claims['webhook'].get('data', {}), dict))
    return claims

def payload(webhook, method, body, content_type):
    if not body and 'hash' not in webhook: return webhook.get('data')
    name, expected = HASH.fullmatch(webhook['hash']).groups()
    actual = hashlib.new(name.replace('-', '_'), body).hexdigest()
    require(method == 'POST' and hmac.compare_digest(actual, expected.lower()))
    return json.loads(body.decode()) if body and 'json' in content_type else body or None

class Webhooks(BaseHTTPRequestHandler):
    def do_POST(self):
        try: claims = verify(', '.join(self.headers.get_all('Authorization', [])))
        except Exception: return self.answer(401, ('WWW-Authenticate', 'Bearer realm="webhooks"'))
        length = 0 if self.command == 'HEAD' else int(self.headers.get('Content-Length', 0))
        if length > 32 * 2**20: return self.answer(413)
        body, webhook = self.rfile.read(length), claims['webhook']
        try: data = payload(webhook, self.command, body, self.headers.get('Content-Type', ''))
        except Exception: return self.answer(400)
        id = claims.get('txn', claims['jti'])
        if id in handled:
            return self.answer(204 if handled[id] == data else 401, ('Webhook-Duplicate', 'true'))
        print(webhook['event'], data, flush=True)  # your handler
        handled[id] = data
        self.answer(204)

    do_HEAD = do_POST
    def do_GET(self): self.answer(405, ('Allow', 'HEAD, POST'))
    do_PUT = do_PATCH = do_DELETE = do_GET

    def answer(self, status, *headers):
        self.send_response(status)
        for header in (('Cache-Control', 'no-store'), ('Connection', 'close'), *headers):
            self.send_header(*header)
        self.end_headers()

ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Webhooks).serve_forever()
