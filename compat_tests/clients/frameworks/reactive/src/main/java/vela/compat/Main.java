package vela.compat;

import java.time.Duration;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.reactive.client.adapter.AdaptedReactivePulsarClientFactory;
import org.apache.pulsar.reactive.client.api.MessageResult;
import org.apache.pulsar.reactive.client.api.MessageSpec;
import org.apache.pulsar.reactive.client.api.ReactiveMessageConsumer;
import org.apache.pulsar.reactive.client.api.ReactivePulsarClient;
import reactor.core.publisher.Flux;

/** The reactive client: messages sent and consumed as streams, with and without refusals. */
public final class Main {
    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        Dialogue.run(Main::play);
    }

    private static void play(String scenario, String serviceUrl, String webUrl, String topic)
            throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(serviceUrl).build()) {
            ReactivePulsarClient reactive = AdaptedReactivePulsarClientFactory.create(client);
            Flux<MessageSpec<String>> specs = Flux.range(0, Dialogue.MESSAGES).map(Main::spec);
            reactive.messageSender(Schema.STRING).topic(topic).batchingEnabled(false).build()
                    .sendMany(specs)
                    .then()
                    .block(Duration.ofSeconds(Dialogue.WAIT_SECONDS));
            ReactiveMessageConsumer<String> consumer = reactive.messageConsumer(Schema.STRING)
                    .topic(topic)
                    .subscriptionName("s")
                    .subscriptionType(SubscriptionType.Shared)
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                    .negativeAckRedeliveryDelay(Duration.ofSeconds(1))
                    .build();
            int refused = (int) IntStream.range(0, Dialogue.MESSAGES).filter(n -> n % 4 == 0).count();
            int wanted = Dialogue.MESSAGES + (scenario.equals("redelivery") ? refused : 0);
            List<Message<String>> received = consumer
                    .consumeMany(messages -> messages.map(message -> result(scenario, message)))
                    .take(wanted)
                    .collectList()
                    .block(Duration.ofSeconds(Dialogue.WAIT_SECONDS));
            Dialogue.seeAll(received);
        }
    }

    private static MessageSpec<String> spec(int number) {
        return MessageSpec.builder(Dialogue.text(number))
                .key(Dialogue.key(number))
                .property("number", Integer.toString(number))
                .build();
    }

    private static MessageResult<Message<String>> result(String scenario, Message<String> message) {
        return Dialogue.isRefused(scenario, message)
                ? MessageResult.negativeAcknowledge(message.getMessageId(), message)
                : MessageResult.acknowledge(message.getMessageId(), message);
    }
}
