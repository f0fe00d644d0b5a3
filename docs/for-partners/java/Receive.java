// Receives webhooks with Jackson:  WEBHOOK_SECRET=… WEBHOOK_ISSUER=… java -cp 'jackson/*' Receive.java 8080
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.regex.Pattern;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

class Receive {
    static final Pattern BEARER =
        Pattern.compile("(?i:bearer) (([\\w-]+)\\.([\\w-]+))\\.([\\w-]{42}[AEIMQUYcgkosw048])");
    static final Pattern HASH = Pattern.compile("(sha(?:3-)?(?:256|384|512)):([0-9a-fA-F]+)");
    static final ObjectMapper JSON = new ObjectMapper()
        .enable(JsonParser.Feature.STRICT_DUPLICATE_DETECTION)
        .enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);
    // In production: a unique column, written in the transaction of the effect.
    static final Map<String, Object> HANDLED = new ConcurrentHashMap<>();

    static void demand(boolean condition) {
        if (!condition) throw new IllegalArgumentException("refused");
    }

    static JsonNode verify(String authorization) throws Exception {
        var part = BEARER.matcher(authorization);
        demand(part.matches());
        var mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(System.getenv("WEBHOOK_SECRET").getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
        var decoder = Base64.getUrlDecoder();
        demand(MessageDigest.isEqual(mac.doFinal(part.group(1).getBytes()), decoder.decode(part.group(4))));
        JsonNode header = JSON.readTree(decoder.decode(part.group(2)));
        JsonNode claims = JSON.readTree(decoder.decode(part.group(3)));
        demand(header.isObject() && header.path("alg").asText().equals("HS256"));
        demand(header.path("typ").asText().toLowerCase().matches("(application/)?jwt"));
        demand(!header.has("crit") && !header.has("b64") && !header.has("zip"));
        demand(claims.path("iss").asText().equals(System.getenv("WEBHOOK_ISSUER")) && !claims.has("aud"));
        for (var id : List.of(claims.path("jti"), claims.has("txn") ? claims.get("txn") : claims.path("jti")))
            demand(id.isTextual() && id.textValue().matches("\\P{Cc}{1,255}"));
        demand(claims.path("iat").isNumber() && claims.path("exp").isNumber());
        demand(claims.path("nbf").isNumber() || !claims.has("nbf"));
        double iat = claims.get("iat").doubleValue(), nbf = claims.path("nbf").doubleValue();
        double exp = claims.get("exp").doubleValue(), now = System.currentTimeMillis() / 1000.0;
        demand(iat < exp && exp <= iat + 3600 && Math.max(iat, nbf) - 60 <= now && now < exp + 60);
        JsonNode webhook = claims.path("webhook");
        demand(webhook.path("event").isTextual() && webhook.get("event").textValue().matches("[\\w-]+(\\.[\\w-]+)+"));
        demand(webhook.path("data").isObject() || !webhook.has("data"));
        return claims;
    }

    static JsonNode payload(JsonNode webhook, HttpExchange exchange) throws Exception {
        boolean isPost = exchange.getRequestMethod().equals("POST");
        byte[] body = isPost ? exchange.getRequestBody().readNBytes(32 << 20) : new byte[0];
        if (body.length == 0 && !webhook.has("hash")) return webhook.path("data");
        var part = HASH.matcher(webhook.path("hash").asText());
        demand(isPost && part.matches());
        String algorithm = part.group(1).replaceFirst("^sha(?=\\d{3}$)", "SHA-").toUpperCase();
        byte[] actual = MessageDigest.getInstance(algorithm).digest(body);
        demand(MessageDigest.isEqual(actual, HexFormat.of().parseHex(part.group(2))));
        String type = exchange.getRequestHeaders().getFirst("Content-Type");
        boolean isJson = body.length > 0 && type != null && type.contains("json");
        return isJson ? JSON.readTree(body) : JSON.getNodeFactory().binaryNode(body);
    }

    static int receive(HttpExchange exchange) throws IOException {
        var headers = exchange.getResponseHeaders();
        headers.set("Cache-Control", "no-store");
        if (!exchange.getRequestMethod().matches("HEAD|POST")) {
            headers.set("Allow", "HEAD, POST");
            return 405;
        }
        // A body that is not read must not be taken for the next request.
        boolean hasBody = !exchange.getRequestHeaders().getOrDefault("Content-Length", List.of("0")).equals(List.of("0"));
        if (hasBody && exchange.getRequestMethod().equals("HEAD")) headers.set("Connection", "close");
        JsonNode claims, data;
        try {
            claims = verify(String.join(", ", exchange.getRequestHeaders().getOrDefault("Authorization", List.of())));
        } catch (Exception refused) {
            headers.set("WWW-Authenticate", "Bearer realm=\"webhooks\"");
            return 401;
        }
        try {
            data = payload(claims.get("webhook"), exchange);
        } catch (Exception refused) {
            return 400;
        }
        String id = claims.path("txn").asText(claims.get("jti").textValue());
        Object known = HANDLED.get(id);
        if (known != null) {
            headers.set("Webhook-Duplicate", "true");
            return known.equals(data) ? 204 : 401;
        }
        System.out.println(claims.get("webhook").get("event") + " " + data); // your handler
        HANDLED.put(id, data);
        return 204;
    }

    public static void main(String[] args) throws Exception {
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])), 0);
        server.createContext("/", exchange -> {
            try (exchange) {
                exchange.sendResponseHeaders(receive(exchange), -1);
            }
        });
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
    }
}
