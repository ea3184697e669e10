package vela.compat;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionType;

/** A scenario's client, topic names and trace. The trace has no ids, times or addresses. */
final class Stage implements AutoCloseable {
    static final int RECEIVE_SECONDS = 10;
    private static final int PATIENT_MILLIS = 20_000;
    private static final int IMPATIENT_MILLIS = 500;
    private static final int TURN_MILLIS = 20;
    private static final int TOGETHER_SECONDS_MAX = 30;
    private static final Gson GSON =
            new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

    private final String serviceUrl;
    private final String webUrl;
    private final String topicBase;
    final String keys;
    private final BufferedReader answers;
    private final PrintStream out;
    /** Of the clients of the scenario before: the next one need not wait for their threads. */
    private static CompletableFuture<Void> closingOfFormer =
            CompletableFuture.completedFuture(null);
    private final List<PulsarClient> clients = new ArrayList<>();
    private PulsarAdmin admin;
    private PulsarClient impatient;

    Stage(JsonObject request, BufferedReader answers, PrintStream out) {
        this.serviceUrl = request.get("service_url").getAsString();
        this.webUrl = request.get("web_url").getAsString();
        this.topicBase = request.get("topic").getAsString();
        this.keys = request.get("keys").getAsString();
        this.answers = answers;
        this.out = out;
    }

    String topic() {
        return "persistent://" + topicBase;
    }

    /** The last part of the topic's name, which no other scenario has. */
    String name() {
        return topicBase.substring(topicBase.lastIndexOf('/') + 1);
    }

    String topic(String suffix) {
        return topic() + "-" + suffix;
    }

    String nonPersistentTopic() {
        return "non-persistent://" + topicBase;
    }

    /** The administrator's client. */
    PulsarAdmin admin() throws PulsarClientException {
        if (admin == null) {
            admin = PulsarAdmin.builder().serviceHttpUrl(webUrl).build();
        }
        return admin;
    }

    PulsarClient newClient() throws PulsarClientException {
        return newClient(PATIENT_MILLIS);
    }

    /** One that soon gives up where it takes an error for a passing one. */
    PulsarClient impatientClient() throws PulsarClientException {
        if (impatient == null) {
            impatient = newClient(IMPATIENT_MILLIS);
        }
        return impatient;
    }

    private PulsarClient newClient(int operationMillis) throws PulsarClientException {
        return kept(PulsarClient.builder()
                .serviceUrl(serviceUrl)
                .operationTimeout(operationMillis, TimeUnit.MILLISECONDS)
                .build());
    }

    /** A client that shows the token in a file of the keys, read again whenever one is needed. */
    PulsarClient clientWithToken(String file) throws PulsarClientException {
        return kept(PulsarClient.builder()
                .serviceUrl(serviceUrl)
                .authentication(AuthenticationFactory.token(() -> contentOf(file)))
                .operationTimeout(20, TimeUnit.SECONDS)
                .build());
    }

    /** Of user:password. */
    static Authentication basic(String credential) throws PulsarClientException {
        String[] parts = credential.split(":");
        return AuthenticationFactory.create(
                "org.apache.pulsar.client.impl.auth.AuthenticationBasic",
                Map.of("userId", parts[0], "password", parts[1]));
    }

    /** What is in a file of the keys now. */
    String contentOf(String file) {
        try {
            return Files.readString(Path.of(keys, file));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    String serviceUrl() {
        return serviceUrl;
    }

    /** A client that is closed with the stage. */
    PulsarClient kept(PulsarClient client) {
        synchronized (clients) {
            clients.add(client);
        }
        return client;
    }

    PulsarClient client() throws PulsarClientException {
        return clients.isEmpty() ? newClient() : clients.get(0);
    }

    ConsumerBuilder<byte[]> consumer(String topic, SubscriptionType type) throws Exception {
        return client().newConsumer().topic(topic).subscriptionName("s").subscriptionType(type);
    }

    Consumer<byte[]> subscribe(String topic) throws Exception {
        return consumer(topic, SubscriptionType.Exclusive).subscribe();
    }

    ProducerBuilder<byte[]> producer(String topic) throws Exception {
        return client().newProducer().topic(topic).enableBatching(false);
    }

    void see(String what, Object value) {
        out.println(GSON.toJson(Arrays.asList(what, value)));
    }

    void seeMessage(String what, Message<byte[]> message) {
        see(what, form(message));
    }

    void seeError(String what, Callable<?> action) {
        try {
            action.call();
            see(what, null);
        } catch (Exception refused) {
            see(what, nameOf(refused));
        }
    }

    /** The name of the client's own exception. */
    static String nameOf(Exception refused) {
        Throwable cause = refused;
        while (!isOfClient(cause) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        return cause.getClass().getSimpleName();
    }

    private static boolean isOfClient(Throwable error) {
        return error instanceof PulsarClientException || error instanceof PulsarAdminException;
    }

    /** Have the server stopped, killed or started; returns when that is done. */
    void ask(String whatOfServer) throws Exception {
        out.println("{\"ask\": \"" + whatOfServer + "\"}");
        String answer = answers.readLine();
        if (!"done".equals(answer)) {
            throw new IllegalStateException("the driver answered " + answer);
        }
    }

    String http(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(webUrl + path))
                .header("Content-Type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofString(body == null ? "" : body))
                .build();
        HttpResponse<String> answer =
                HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        return answer.statusCode() + " " + answer.body();
    }

    void partition(String topic, int count) throws Exception {
        String path = "/admin/v2/" + topic.replace("://", "/") + "/partitions";
        String answer = http("PUT", path, Integer.toString(count));
        check(answer.startsWith("204"), answer);
    }

    static Map<String, Object> form(Message<byte[]> message) {
        Map<String, Object> form = new TreeMap<>();
        form.put("data", textOf(message.getData()));
        form.put("key", message.getKey());
        form.put("has ordering key", message.hasOrderingKey());
        form.put("properties", new TreeMap<>(message.getProperties()));
        form.put("redelivery_count", message.getRedeliveryCount());
        form.put("event_time", message.getEventTime());
        form.put("sequence_id", message.getSequenceId());
        IdFields id = new IdFields(message.getMessageId());
        form.put("batch_index", id.batchIndex());
        form.put("batch_size", id.batchSize());
        form.put("partition", id.partition());
        return form;
    }

    static String textOf(byte[] data) {
        if (data.length <= 200) {
            return new String(data, StandardCharsets.UTF_8);
        }
        try {
            byte[] hash = MessageDigest.getInstance("SHA-256").digest(data);
            return "sha256:" + HexFormat.of().formatHex(hash) + ":" + data.length;
        } catch (Exception impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    static String text(Message<byte[]> message) {
        return new String(message.getData(), StandardCharsets.UTF_8);
    }

    static List<String> texts(List<Message<byte[]>> messages) {
        return messages.stream().map(Stage::text).toList();
    }

    static List<Message<byte[]>> receive(Consumer<byte[]> consumer, int count) throws Exception {
        List<Message<byte[]>> received = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message<byte[]> message = consumer.receive(RECEIVE_SECONDS, TimeUnit.SECONDS);
            check(message != null, "only " + i + " of " + count + " messages came");
            received.add(message);
        }
        return received;
    }

    static List<Message<byte[]>> receiveAndAck(Consumer<byte[]> consumer, int count)
            throws Exception {
        List<Message<byte[]>> received = receive(consumer, count);
        for (Message<byte[]> message : received) {
            consumer.acknowledge(message);
        }
        return received;
    }

    static List<Message<byte[]>> untilSilence(Consumer<byte[]> consumer, int millis)
            throws Exception {
        List<Message<byte[]>> received = new ArrayList<>();
        Message<byte[]> message;
        while ((message = consumer.receive(millis, TimeUnit.MILLISECONDS)) != null) {
            received.add(message);
            consumer.acknowledge(message);
        }
        return received;
    }

    /** What each gets, acknowledged: until all have so many together, then to a silence. */
    static List<List<Message<byte[]>>> together(
            List<Consumer<byte[]>> consumers, int count, int silenceMillis) throws Exception {
        List<List<Message<byte[]>>> parts = new ArrayList<>();
        consumers.forEach(each -> parts.add(new ArrayList<>()));
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TOGETHER_SECONDS_MAX);
        int got = 0;
        while (got < count) {
            check(System.nanoTime() < deadline, "only " + got + " of " + count + " came");
            got = 0;
            for (int i = 0; i < parts.size(); i++) {
                parts.get(i).addAll(untilSilence(consumers.get(i), TURN_MILLIS));
                got += parts.get(i).size();
            }
        }
        for (int i = 0; i < parts.size(); i++) {
            parts.get(i).addAll(untilSilence(consumers.get(i), silenceMillis));
        }
        return parts;
    }

    /** The same for one consumer, as texts. */
    static List<String> gets(Consumer<byte[]> consumer, int count, int silenceMillis)
            throws Exception {
        return texts(together(List.of(consumer), count, silenceMillis).get(0));
    }

    /**
     * Everything, acknowledged, until all expected texts were seen and then a silence came; a text
     * that does not come within the time is left to the caller to miss.
     */
    static List<Message<byte[]>> allOf(
            Consumer<byte[]> consumer, List<String> expected, int withinMillis, int silenceMillis)
            throws Exception {
        Set<String> missing = new HashSet<>(expected);
        List<Message<byte[]>> received = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(withinMillis);
        while (!missing.isEmpty()) {
            long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
            Message<byte[]> message = left <= 0
                    ? null : consumer.receive((int) left, TimeUnit.MILLISECONDS);
            if (message == null) {
                break;
            }
            consumer.acknowledge(message);
            received.add(message);
            missing.remove(text(message));
        }
        received.addAll(untilSilence(consumer, silenceMillis));
        return received;
    }

    static List<String> numbered(String prefix, int from, int to) {
        return IntStream.range(from, to).mapToObj(i -> prefix + i).toList();
    }

    static void send(Producer<byte[]> producer, String prefix, int count) throws Exception {
        List<CompletableFuture<?>> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            sent.add(producer.sendAsync((prefix + i).getBytes(StandardCharsets.UTF_8)));
        }
        producer.flush();
        for (CompletableFuture<?> one : sent) {
            one.get(30, TimeUnit.SECONDS);
        }
    }


    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }


    /** Close all clients, and wait: one alone takes two seconds to end its threads. */
    void closeClients() {
        closing().join();
    }

    private CompletableFuture<Void> closing() {
        CompletableFuture<?>[] all = clients.stream()
                .map(client -> client.closeAsync().exceptionally(alreadyClosed -> null))
                .toArray(CompletableFuture[]::new);
        clients.clear();
        impatient = null;
        return CompletableFuture.allOf(all);
    }

    @Override
    public void close() {
        closingOfFormer.join();
        closingOfFormer = closing();
        if (admin != null) {
            admin.close();
        }
    }
}
