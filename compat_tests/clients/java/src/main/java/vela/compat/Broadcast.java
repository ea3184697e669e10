package vela.compat;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.SubscriptionType;

/**
 * Vela's own: every consumer of one subscription gets everything. The driver publishes "0", "1", ...
 * once all consumers of all programs are connected.
 */
final class Broadcast {
    private static final int CONSUMERS = 100;
    private static final int MESSAGES = 40;
    private static final int PATIENCE_SECONDS = 100;

    private Broadcast() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("broadcast-exclusive", stage -> play(stage, SubscriptionType.Exclusive));
        scenarios.put("broadcast-shared", stage -> play(stage, SubscriptionType.Shared));
    }

    private static void play(Stage stage, SubscriptionType type) throws Exception {
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int i = 0; i < CONSUMERS; i++) {
            consumers.add(stage.consumer(stage.topic(), type)
                    .subscriptionName("everybody")
                    .consumerName("java-" + i)
                    .subscriptionProperties(Map.of("vela.broadcast", "true"))
                    .subscribe());
        }
        int inOrder = 0;
        for (Consumer<byte[]> consumer : consumers) {
            receiveAll(consumer, type);
            inOrder++;
        }
        for (Consumer<byte[]> consumer : consumers) {
            Stage.check(consumer.receive(1, TimeUnit.MILLISECONDS) == null,
                    consumer.getConsumerName() + " got more than there was");
        }
        stage.see("consumers that got everything in order", inOrder);
    }

    private static void receiveAll(Consumer<byte[]> consumer, SubscriptionType type)
            throws Exception {
        String name = consumer.getConsumerName();
        for (int i = 0; i < MESSAGES; i++) {
            Message<byte[]> message = consumer.receive(PATIENCE_SECONDS, TimeUnit.SECONDS);
            Stage.check(message != null, name + " got only " + i + " messages");
            String got = Stage.text(message);
            Stage.check(got.equals("" + i), name + " got " + got + ", not " + i);
            if (type == SubscriptionType.Shared) {
                consumer.acknowledge(message);
            } else if (i % 10 == 9) {
                consumer.acknowledgeCumulative(message);
            }
        }
    }
}
