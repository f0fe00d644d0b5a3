// Sends an event with Jackson:  WEBHOOK_SECRET=… WEBHOOK_ISSUER=… java -cp 'jackson/*' Send.java URL EVENT JSON
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.Base64;
import java.util.HexFormat;
import java.util.UUID;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

class Send {
    static final ObjectMapper JSON = new ObjectMapper();
    static final HttpClient CLIENT = HttpClient.newHttpClient(); // it follows no redirect

    /** One attempt. Repeat it later with the same id and bytes until it returns true. */
    static boolean send(String url, String event, byte[] body, String id) throws Exception {
        JsonNode data = JSON.readTree(body);
        boolean inline = data.isObject() && JSON.writeValueAsBytes(data).length <= 4800;
        var webhook = JSON.createObjectNode().put("event", event);
        if (inline) webhook.set("data", data);
        else webhook.put("hash", "sha256:" + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body)));
        long now = System.currentTimeMillis() / 1000;
        var claims = JSON.createObjectNode().put("iss", System.getenv("WEBHOOK_ISSUER"));
        claims.put("iat", now).put("nbf", now).put("exp", now + 300);
        claims.put("jti", UUID.randomUUID().toString()).put("txn", id).set("webhook", webhook);
        var base64url = Base64.getUrlEncoder().withoutPadding();
        String input = base64url.encodeToString("{\"alg\":\"HS256\",\"typ\":\"JWT\"}".getBytes())
            + "." + base64url.encodeToString(JSON.writeValueAsBytes(claims));
        var mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(System.getenv("WEBHOOK_SECRET").getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
        String token = input + "." + base64url.encodeToString(mac.doFinal(input.getBytes()));
        var request = HttpRequest.newBuilder(URI.create(url)).timeout(Duration.ofSeconds(15))
            .header("Authorization", "Bearer " + token).header("Content-Type", "application/json")
            .method(inline ? "HEAD" : "POST", inline ? BodyPublishers.noBody() : BodyPublishers.ofByteArray(body));
        int status = CLIENT.send(request.build(), BodyHandlers.discarding()).statusCode();
        return inline ? status == 202 || status == 204 : status >= 200 && status < 300;
    }

    public static void main(String[] args) throws Exception {
        byte[] body = args[2].getBytes(StandardCharsets.UTF_8);
        System.exit(send(args[0], args[1], body, UUID.randomUUID().toString()) ? 0 : 1);
    }
}
