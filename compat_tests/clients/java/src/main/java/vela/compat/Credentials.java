package vela.compat;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/** For servers that want credentials, which the test has written to files of the keys. */
final class Credentials {
    private static final int RENEWED_SECONDS = 32;
    private static final int PAUSE_MILLIS = 20;

    private Credentials() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("credentials", Credentials::credentials);
        scenarios.put("credentials-renewed", Credentials::renewed);
    }

    /** Each credential of the list: whether it opens a connection that can publish and receive. */
    static void credentials(Stage stage) throws Exception {
        for (String line : Files.readAllLines(Path.of(stage.keys, "credentials.txt"))) {
            String[] words = line.split(" ");
            stage.seeError(line, () -> {
                PulsarClient client = stage.clientWith(words[0], words[1]);
                String topic = stage.topic(words[1]);
                try (Consumer<byte[]> consumer =
                                client.newConsumer().topic(topic).subscriptionName("s").subscribe();
                        Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
                    producer.send(words[1].getBytes());
                    stage.seeMessage(words[1], consumer.receive(10, TimeUnit.SECONDS));
                }
                return null;
            });
        }
        stage.seeError("nothing", () -> stage.newClient().newProducer().topic(stage.topic()).create());
    }

    /** A token of three seconds, over ten of its ends: nothing is lost, doubled or reconnected. */
    static void renewed(Stage stage) throws Exception {
        PulsarClient client = stage.clientWith("token", "short");
        Consumer<byte[]> consumer =
                client.newConsumer().topic(stage.topic()).subscriptionName("s").subscribe();
        Producer<byte[]> producer = client.newProducer().topic(stage.topic()).create();
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(RENEWED_SECONDS);
        int sent = 0;
        int inOrder = 0;
        while (System.nanoTime() < end) {
            producer.send(Integer.toString(sent).getBytes());
            Message<byte[]> message = consumer.receive(10, TimeUnit.SECONDS);
            if (new String(message.getData()).equals(Integer.toString(sent))) {
                inOrder++;
            }
            consumer.acknowledge(message);
            sent++;
            Thread.sleep(PAUSE_MILLIS);
        }
        stage.see("all in order", inOrder == sent);
        stage.see("more", consumer.receive(700, TimeUnit.MILLISECONDS));
        stage.see("disconnected", List.of(
                producer.getLastDisconnectedTimestamp(), consumer.getLastDisconnectedTimestamp()));
    }
}
