// Sends an event with .NET 8. Not tested here.  WEBHOOK_SECRET=… WEBHOOK_ISSUER=… dotnet run -- URL EVENT JSON
using System.Net.Http.Headers;
using System.Security.Cryptography;
using System.Text;
using System.Text.Json;
using System.Text.Json.Nodes;

var http = new HttpClient(new HttpClientHandler { AllowAutoRedirect = false }) { Timeout = TimeSpan.FromSeconds(15) };

static string Base64Url(byte[] bytes) =>
    Convert.ToBase64String(bytes).TrimEnd('=').Replace('+', '-').Replace('/', '_');

// One attempt. Repeat it later with the same id and bytes until it returns true.
async Task<bool> Send(string url, string name, byte[] body, string id)
{
    var data = JsonNode.Parse(body);
    var inline = data is JsonObject && data.ToJsonString().Length <= 4800;
    var webhook = new JsonObject { ["event"] = name };
    if (inline) webhook["data"] = data;
    else webhook["hash"] = "sha256:" + Convert.ToHexString(SHA256.HashData(body)).ToLowerInvariant();
    var now = DateTimeOffset.UtcNow.ToUnixTimeSeconds();
    var claims = new JsonObject
    {
        ["iss"] = Environment.GetEnvironmentVariable("WEBHOOK_ISSUER"),
        ["iat"] = now, ["nbf"] = now, ["exp"] = now + 300,
        ["jti"] = Guid.NewGuid().ToString(), ["txn"] = id, ["webhook"] = webhook,
    };
    var input = Base64Url("""{"alg":"HS256","typ":"JWT"}"""u8.ToArray()) + "."
        + Base64Url(Encoding.UTF8.GetBytes(claims.ToJsonString()));
    var secret = Encoding.UTF8.GetBytes(Environment.GetEnvironmentVariable("WEBHOOK_SECRET")!);
    var token = input + "." + Base64Url(HMACSHA256.HashData(secret, Encoding.ASCII.GetBytes(input)));
    var request = new HttpRequestMessage(inline ? HttpMethod.Head : HttpMethod.Post, url)
    {
        Content = new ByteArrayContent(inline ? [] : body),
    };
    request.Headers.Authorization = new AuthenticationHeaderValue("Bearer", token);
    request.Content.Headers.ContentType = new MediaTypeHeaderValue("application/json");
    using var response = await http.SendAsync(request);
    return inline ? (int)response.StatusCode is 202 or 204 : response.IsSuccessStatusCode;
}

return await Send(args[0], args[1], Encoding.UTF8.GetBytes(args[2]), Guid.NewGuid().ToString()) ? 0 : 1;
