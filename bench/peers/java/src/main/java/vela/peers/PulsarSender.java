package vela.peers;

import java.util.function.Consumer;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/** The stock producer with its defaults. */
final class PulsarSender implements Load.Sender {
    private final Producer<byte[]> producer;

    PulsarSender(String url, String topic, boolean batched, int outstandingMax) throws Exception {
        PulsarClient client = PulsarClient.builder().serviceUrl(url).build();
        producer = client.newProducer()
                .topic(topic)
                .enableBatching(batched)
                .maxPendingMessages(outstandingMax)
                .blockIfQueueFull(true)
                .create();
    }

    @Override
    public void send(byte[] payload, Consumer<Throwable> done) {
        producer.sendAsync(payload).whenComplete((id, failure) -> done.accept(failure));
    }

    @Override
    public void close() {
        // The program ends, and whoever started it deletes the topic.
    }
}
