package vela.compat;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.net.URI;
import java.net.URL;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.impl.auth.oauth2.AuthenticationFactoryOAuth2;

/** Attempts to subscribe and publish, each with a credential, at a URL, on a topic of its own. */
final class Attempts {
    private static final String CLASSES = "org.apache.pulsar.client.impl.auth.";

    private Attempts() {
    }

    /** Of each line of a file, all at once: what subscribing says, what publishing says, and what is received. */
    static void attempts(Stage stage) throws Exception {
        List<JsonObject> attempts = stage.contentOf("attempts.txt").lines()
                .map(line -> new Gson().fromJson(line, JsonObject.class)).toList();
        ExecutorService pool = Executors.newFixedThreadPool(attempts.size());
        List<Future<Object>> outcomes = new ArrayList<>();
        for (JsonObject attempt : attempts) {
            outcomes.add(pool.submit(() -> outcome(attempt)));
        }
        for (int i = 0; i < attempts.size(); i++) {
            stage.see(text(attempts.get(i), "label"), outcomes.get(i).get());
        }
        pool.shutdown();
    }

    private static Object outcome(JsonObject attempt) throws Exception {
        String topic = text(attempt, "topic");
        String subscribed = null;
        String published = null;
        String received = null;
        try (PulsarClient client = client(attempt)) {
            Consumer<byte[]> consumer = null;
            try {
                consumer = client.newConsumer().topic(topic)
                        .subscriptionName(text(attempt, "subscription")).subscribe();
            } catch (Exception refused) {
                subscribed = Stage.nameOf(refused);
            }
            try (Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
                producer.send("hello".getBytes());
            } catch (Exception refused) {
                published = Stage.nameOf(refused);
            }
            if (subscribed == null && published == null) {
                Message<byte[]> message = consumer.receive(10, TimeUnit.SECONDS);
                received = message == null ? null : new String(message.getData());
            }
        }
        return Arrays.asList(subscribed, published, received);
    }

    private static PulsarClient client(JsonObject attempt) throws Exception {
        int seconds = attempt.get("seconds").getAsInt();
        ClientBuilder builder = PulsarClient.builder()
                .serviceUrl(text(attempt, "url"))
                .operationTimeout(seconds, TimeUnit.SECONDS)
                .lookupTimeout(seconds, TimeUnit.SECONDS)
                .enableTlsHostnameVerification(true)
                .tlsTrustCertsFilePath(text(attempt, "trusted"));
        Authentication authentication = authentication(attempt);
        return (authentication == null ? builder : builder.authentication(authentication)).build();
    }

    private static Authentication authentication(JsonObject attempt) throws Exception {
        String credential = text(attempt, "credential");
        switch (text(attempt, "method")) {
            case "token":
                return AuthenticationFactory.token(credential);
            case "basic":
                return Stage.basic(credential);
            case "tls":
                String[] files = credential.split(",");
                return AuthenticationFactory.create(CLASSES + "AuthenticationTls",
                        Map.of("tlsCertFile", files[0], "tlsKeyFile", files[1]));
            case "oauth2":
                URL issuer = URI.create(text(attempt, "issuer")).toURL();
                return AuthenticationFactoryOAuth2.clientCredentials(
                        issuer, URI.create("file://" + credential).toURL(), "vela");
            default:
                return null;
        }
    }

    private static String text(JsonObject attempt, String name) {
        return attempt.get(name).getAsString();
    }
}
