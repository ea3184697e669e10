package vela.compat;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/** Many connections whose tokens expire again and again while they publish and receive. */
final class Expiries {
    private record Seen(int sent, int inOrder, int more, int disconnected, int renewals) {
    }

    private Expiries() {
    }

    static void expiries(Stage stage) throws Exception {
        JsonObject run = new Gson().fromJson(stage.contentOf("expiries.json"), JsonObject.class);
        int connections = run.get("connections").getAsInt();
        ExecutorService pool = Executors.newFixedThreadPool(connections);
        List<Future<Seen>> playing = new ArrayList<>();
        for (int i = 0; i < connections; i++) {
            String topic = stage.topic(Integer.toString(i));
            playing.add(pool.submit(() -> play(stage, topic, run)));
        }
        for (Future<Seen> one : playing) {
            Seen seen = one.get();
            stage.see("connection", List.of(seen.sent, seen.inOrder, seen.more, seen.disconnected,
                    seen.renewals));
        }
        pool.shutdown();
    }

    private static Seen play(Stage stage, String topic, JsonObject run) throws Exception {
        AtomicInteger shown = new AtomicInteger();
        AtomicReference<String> last = new AtomicReference<>();
        PulsarClient client = stage.kept(PulsarClient.builder()
                .serviceUrl(stage.serviceUrl())
                .authentication(AuthenticationFactory.token(() -> {
                    // Asked for several times whenever it is shown.
                    String token = stage.contentOf("short");
                    if (!token.equals(last.getAndSet(token))) {
                        shown.incrementAndGet();
                    }
                    return token;
                }))
                .ioThreads(1)
                .operationTimeout(20, TimeUnit.SECONDS)
                .build());
        Consumer<byte[]> consumer =
                client.newConsumer().topic(topic).subscriptionName("s").subscribe();
        Producer<byte[]> producer = client.newProducer().topic(topic).create();
        int before = shown.get();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(run.get("seconds").getAsInt());
        int sent = 0;
        int inOrder = 0;
        while (System.nanoTime() < end) {
            producer.send(Integer.toString(sent).getBytes());
            Message<byte[]> message = consumer.receive(10, TimeUnit.SECONDS);
            if (message != null) {
                if (new String(message.getData()).equals(Integer.toString(sent))) {
                    inOrder++;
                }
                consumer.acknowledge(message);
            }
            sent++;
            Thread.sleep(run.get("pause_millis").getAsInt());
        }
        int more = 0;
        while (consumer.receive(700, TimeUnit.MILLISECONDS) != null) {
            more++;
        }
        int disconnected = (producer.getLastDisconnectedTimestamp() != 0 ? 1 : 0)
                + (consumer.getLastDisconnectedTimestamp() != 0 ? 1 : 0);
        return new Seen(sent, inOrder, more, disconnected, shown.get() - before);
    }
}
