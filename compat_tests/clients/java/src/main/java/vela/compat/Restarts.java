package vela.compat;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionType;

/** The server is stopped or killed between publish and consume, clients gone or waiting. */
final class Restarts {
    /** Longer than either server waits before it writes a cursor after the acks. */
    private static final int CURSOR_FLUSH_MILLIS = 2000;

    /** A client that has waited for its server tries again after at most a minute. */
    private static final int RECONNECT_MILLIS_MAX = 90_000;
    /** Longer than a stop, a start and a reconnection take together on a busy machine. */
    private static final int SEND_TIMEOUT_SECONDS = 480;
    private static final int SILENCE_MILLIS = 1000;

    private Restarts() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("restart-between-publish-and-consume", stage -> between(stage, "stop"));
        scenarios.put("kill-9-between-publish-and-consume", stage -> between(stage, "kill"));
        scenarios.put("restart-under-waiting-clients", stage -> waiting(stage, "stop"));
        scenarios.put("kill-9-under-waiting-clients", stage -> waiting(stage, "kill"));
    }

    private static void between(Stage stage, String end) throws Exception {
        List<Boolean> kinds = List.of(false, true);
        for (boolean batched : kinds) {
            String topic = stage.topic("batched-" + batched);
            Consumer<byte[]> consumer =
                    stage.consumer(topic, SubscriptionType.Shared).subscribe();
            Stage.send(stage.producer(topic).enableBatching(batched).create(), "message ", 100);
            List<Message<byte[]>> got = Stage.receive(consumer, 20);
            for (Message<byte[]> message : got) {
                if (!batched && !Stage.text(message).equals("message 3")) {
                    consumer.acknowledge(message);
                }
            }
        }
        Thread.sleep(CURSOR_FLUSH_MILLIS);
        stage.closeClients();
        stage.ask(end);
        stage.ask("start");
        for (boolean batched : kinds) {
            String topic = stage.topic("batched-" + batched);
            Reader<byte[]> reader = stage.client().newReader().topic(topic)
                    .startMessageId(MessageId.earliest).create();
            List<String> kept = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                Message<byte[]> message = reader.readNext(10, TimeUnit.SECONDS);
                Stage.check(message != null, "only " + i + " messages were kept");
                kept.add(Stage.text(message));
            }
            stage.see("kept", kept);
            stage.see("more", reader.hasMessageAvailable());
            Consumer<byte[]> consumer =
                    stage.consumer(topic, SubscriptionType.Shared).subscribe();
            List<String> unacked = new ArrayList<>(Stage.numbered("message ", 20, 100));
            unacked.add("message 3");
            List<Message<byte[]>> rest = Stage.allOf(
                    consumer, unacked, RECONNECT_MILLIS_MAX, 2 * SILENCE_MILLIS);
            Stage.check(Stage.texts(rest).containsAll(unacked), "an unacked message was lost");
            if (end.equals("stop")) {
                stage.see("of the subscription", new TreeSet<>(Stage.texts(rest)));
            }
            Stage.send(stage.producer(topic).create(), "new ", 1);
            stage.see("new", Stage.texts(Stage.allOf(consumer, List.of("new 0"),
                    (int) TimeUnit.SECONDS.toMillis(Stage.RECEIVE_SECONDS), SILENCE_MILLIS)));
        }
    }

    private static void waiting(Stage stage, String end) throws Exception {
        Consumer<byte[]> consumer = stage.subscribe(stage.topic());
        Producer<byte[]> producer = stage.producer(stage.topic())
                .sendTimeout(SEND_TIMEOUT_SECONDS, TimeUnit.SECONDS).create();
        Stage.send(producer, "before ", 10);
        stage.see("before", Stage.texts(Stage.receiveAndAck(consumer, 10)));
        Thread.sleep(CURSOR_FLUSH_MILLIS);
        stage.ask(end);
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            sent.add(producer.sendAsync(Stage.bytes("meanwhile " + i)));
        }
        stage.ask("start");
        for (CompletableFuture<MessageId> one : sent) {
            one.get(RECONNECT_MILLIS_MAX, TimeUnit.MILLISECONDS);
        }
        Stage.send(producer, "after ", 10);
        List<String> expected = new ArrayList<>(Stage.numbered("meanwhile ", 0, 10));
        expected.addAll(Stage.numbered("after ", 0, 10));
        LinkedHashSet<String> seen = new LinkedHashSet<>(Stage.texts(
                Stage.allOf(consumer, expected, RECONNECT_MILLIS_MAX, SILENCE_MILLIS)));
        seen.removeIf(text -> text.startsWith("before"));
        stage.see("after", seen);
    }
}
