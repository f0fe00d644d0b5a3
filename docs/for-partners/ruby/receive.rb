# Receives webhooks with ruby-jwt:  WEBHOOK_SECRET=… WEBHOOK_ISSUER=… ruby receive.rb 8080
require 'jwt'
require 'openssl'
require 'webrick'

SECRET, ISSUER = ENV.fetch('WEBHOOK_SECRET'), ENV.fetch('WEBHOOK_ISSUER')
BEARER = /\A(?i:bearer) ([\w-]+\.([\w-]+)\.[\w-]{42}[AEIMQUYcgkosw048])\z/
HASH = /\A(sha256|sha384|sha512|sha3-256|sha3-384|sha3-512):(\h+)\z/
HANDLED = {} # in production: a unique column, written in the transaction of the effect

class Unique < Hash
  def []=(name, value)
    raise 'repeated member' if key?(name)
    super
  end
end

def demand(condition) = condition || raise('refused')
def utf8(bytes) = bytes.force_encoding('UTF-8').tap { |text| demand text.valid_encoding? }

def verify(authorization)
  token, segment = BEARER.match(authorization).captures
  _, header = JWT.decode(token, SECRET, true, algorithm: 'HS256', verify_not_before: false,
                                              verify_expiration: false)
  demand header['alg'] == 'HS256' && header['typ'].match?(%r{\A(application/)?jwt\z}i)
  demand (%w[crit b64 zip] & header.keys).empty?
  claims = JSON.parse(utf8(JWT::Base64.url_decode(segment)), object_class: Unique)
  iat, nbf, exp = times = [claims['iat'], claims.fetch('nbf', 0), claims['exp']]
  demand claims['iss'] == ISSUER && !claims.key?('aud')
  ids = [claims['jti'], claims.fetch('txn', claims['jti'])]
  demand ids.all? { |id| id.is_a?(String) && id.match?(/\A[^[:cntrl:]]{1,255}\z/) }
  demand times.all? { |time| time.is_a?(Numeric) } && iat < exp && exp <= iat + 3600
  demand [iat, nbf].max - 60 <= Time.now.to_f && Time.now.to_f < exp + 60
  webhook = claims['webhook']
  demand webhook['event'].is_a?(String) && webhook['event'].match?(/\A[\w-]+(\.[\w-]+)+\z/)
  demand webhook['data'].is_a?(Hash) || !webhook.key?('data')
  claims
end

def payload(webhook, request)
  body = request.request_method == 'HEAD' ? '' : request.body.to_s
  return webhook['data'] if body.empty? && !webhook.key?('hash')
  name, expected = HASH.match(webhook['hash']).captures
  actual = OpenSSL::Digest.hexdigest(name, body)
  demand request.request_method == 'POST'
  demand OpenSSL.secure_compare(actual, expected.downcase)
  request['content-type'].to_s.include?('json') && !body.empty? ? JSON.parse(utf8(body)) : body
end

class Webhooks < WEBrick::HTTPServlet::AbstractServlet
  def do_POST(request, response)
    response['Cache-Control'] = 'no-store'
    response.keep_alive = false
    claims = verify(request['authorization']) rescue nil
    response['WWW-Authenticate'] = 'Bearer realm="webhooks"' unless claims
    response.status = claims ? handle(claims, request, response) : 401
  end
  alias do_HEAD do_POST
  def do_GET(_, response)
    response['Allow'] = 'HEAD, POST'
    response.status = 405
  end

  def handle(claims, request, response)
    data = payload(claims['webhook'], request) rescue (return 400)
    id = claims['txn'] || claims['jti']
    if HANDLED.key?(id)
      response['Webhook-Duplicate'] = 'true'
      return HANDLED[id] == data ? 204 : 401
    end
    puts "#{claims['webhook']['event']} #{data}" # your handler
    HANDLED[id] = data
    204
  end
end

server = WEBrick::HTTPServer.new(BindAddress: '127.0.0.1', Port: ARGV[0].to_i, AccessLog: [])
server.mount('/webhooks', Webhooks)
server.start
