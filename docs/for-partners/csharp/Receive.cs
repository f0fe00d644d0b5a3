// Receives webhooks with ASP.NET Core 8. Not tested here.  WEBHOOK_SECRET=… WEBHOOK_ISSUER=… dotnet run
using System.Collections.Concurrent;
using System.Security.Cryptography;
using System.Text;
using System.Text.Json;
using System.Text.RegularExpressions;

var secret = Encoding.UTF8.GetBytes(Environment.GetEnvironmentVariable("WEBHOOK_SECRET")!);
var issuer = Environment.GetEnvironmentVariable("WEBHOOK_ISSUER")!;
var handled = new ConcurrentDictionary<string, string>(); // in production: a unique column

static void Demand(bool condition)
{
    if (!condition) throw new InvalidOperationException("refused");
}

static byte[] Decode(string part) =>
    Convert.FromBase64String(part.Replace('-', '+').Replace('_', '/') + new string('=', (4 - part.Length % 4) % 4));

// JsonDocument keeps repeated members, so they can be refused.
static void DemandUnique(JsonElement value)
{
    if (value.ValueKind == JsonValueKind.Array)
        foreach (var one in value.EnumerateArray()) DemandUnique(one);
    if (value.ValueKind != JsonValueKind.Object) return;
    var names = new HashSet<string>();
    foreach (var member in value.EnumerateObject())
    {
        Demand(names.Add(member.Name));
        DemandUnique(member.Value);
    }
}

static JsonElement Parse(string part)
{
    var value = JsonDocument.Parse(Decode(part)).RootElement;
    DemandUnique(value);
    return value;
}

JsonElement Verify(string authorization)
{
    var part = Regex.Match(authorization,
        @"\A(?i:bearer) (([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+))\.([A-Za-z0-9_-]{42}[AEIMQUYcgkosw048])\z").Groups;
    Demand(part[0].Success);
    var mac = HMACSHA256.HashData(secret, Encoding.ASCII.GetBytes(part[1].Value));
    Demand(CryptographicOperations.FixedTimeEquals(mac, Decode(part[4].Value)));
    var (header, claims) = (Parse(part[2].Value), Parse(part[3].Value));
    Demand(header.GetProperty("alg").GetString() == "HS256");
    Demand(Regex.IsMatch(header.GetProperty("typ").GetString()!, @"\A(?i:(application/)?jwt)\z"));
    Demand(!new[] { "crit", "b64", "zip" }.Any(name => header.TryGetProperty(name, out _)));
    Demand(claims.GetProperty("iss").GetString() == issuer && !claims.TryGetProperty("aud", out _));
    Demand(Regex.IsMatch(claims.GetProperty("jti").GetString()!, @"\A\P{Cc}{1,255}\z"));
    if (claims.TryGetProperty("txn", out var txn)) Demand(Regex.IsMatch(txn.GetString()!, @"\A\P{Cc}{1,255}\z"));
    var iat = claims.GetProperty("iat").GetDouble();
    var exp = claims.GetProperty("exp").GetDouble();
    var nbf = claims.TryGetProperty("nbf", out var time) ? time.GetDouble() : iat;
    var now = DateTimeOffset.UtcNow.ToUnixTimeMilliseconds() / 1000.0;
    Demand(iat < exp && exp <= iat + 3600 && Math.Max(iat, nbf) - 60 <= now && now < exp + 60);
    var webhook = claims.GetProperty("webhook");
    Demand(Regex.IsMatch(webhook.GetProperty("event").GetString()!, @"\A[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+\z"));
    Demand(!webhook.TryGetProperty("data", out var data) || data.ValueKind == JsonValueKind.Object);
    return claims;
}

static string Payload(JsonElement webhook, string method, byte[] body)
{
    if (body.Length == 0 && !webhook.TryGetProperty("hash", out _))
        return webhook.TryGetProperty("data", out var data) ? data.GetRawText() : "";
    var hash = Regex.Match(webhook.GetProperty("hash").GetString()!,
        @"\A(sha256|sha384|sha512|sha3-256|sha3-384|sha3-512):([0-9a-fA-F]+)\z").Groups;
    Demand(hash[0].Success && method == "POST");
    using var digest = IncrementalHash.CreateHash(new HashAlgorithmName(hash[1].Value.ToUpperInvariant()));
    digest.AppendData(body);
    var expected = Convert.FromHexString(hash[2].Value);
    Demand(CryptographicOperations.FixedTimeEquals(digest.GetHashAndReset(), expected));
    return Encoding.UTF8.GetString(body);
}

async Task<int> Receive(HttpRequest request, IHeaderDictionary headers)
{
    headers.CacheControl = "no-store";
    if (request.Method is not ("HEAD" or "POST"))
    {
        headers.Allow = "HEAD, POST";
        return 405;
    }
    JsonElement claims;
    try { claims = Verify(request.Headers.Authorization.ToString()); }
    catch (Exception)
    {
        headers.WWWAuthenticate = "Bearer realm=\"webhooks\"";
        return 401;
    }
    using var body = new MemoryStream();
    if (request.Method == "POST") await request.Body.CopyToAsync(body);
    else if (request.ContentLength > 0) headers.Connection = "close"; // it must not be read as the next request
    var webhook = claims.GetProperty("webhook");
    string data;
    try { data = Payload(webhook, request.Method, body.ToArray()); }
    catch (Exception) { return 400; }
    var id = (claims.TryGetProperty("txn", out var txn) ? txn : claims.GetProperty("jti")).GetString()!;
    if (handled.TryGetValue(id, out var known))
    {
        headers["Webhook-Duplicate"] = "true";
        return known == data ? 204 : 401;
    }
    Console.WriteLine($"{webhook.GetProperty("event")} {data}"); // your handler
    handled[id] = data;
    return 204;
}

var app = WebApplication.Create(args);
app.Run(async context => context.Response.StatusCode = await Receive(context.Request, context.Response.Headers));
app.Run();
