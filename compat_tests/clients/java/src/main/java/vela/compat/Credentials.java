package vela.compat;

import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/** For servers that want credentials, which the test has written to files of the keys. */
final class Credentials {
    private static final int RENEWED_SECONDS = 8;
    private static final int PAUSE_MILLIS = 20;

    private Credentials() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("credentials-renewed", Credentials::renewed);
        scenarios.put("attempts", Attempts::attempts);
        scenarios.put("expiries", Expiries::expiries);
    }

    /** A token of three seconds, over two of its ends: nothing is lost, doubled or reconnected. */
    static void renewed(Stage stage) throws Exception {
        PulsarClient client = stage.clientWithToken("short");
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
