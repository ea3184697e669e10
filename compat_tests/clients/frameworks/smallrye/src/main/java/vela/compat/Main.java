package vela.compat;

import io.smallrye.reactive.messaging.MutinyEmitter;
import io.smallrye.reactive.messaging.pulsar.PulsarIncomingMessageMetadata;
import io.smallrye.reactive.messaging.pulsar.PulsarOutgoingMessageMetadata;
import jakarta.enterprise.context.ApplicationScoped;
import jakarta.inject.Inject;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.eclipse.microprofile.reactive.messaging.Channel;
import org.eclipse.microprofile.reactive.messaging.Incoming;
import org.eclipse.microprofile.reactive.messaging.Message;
import org.jboss.weld.environment.se.Weld;
import org.jboss.weld.environment.se.WeldContainer;

/** SmallRye: an emitter that sends and a channel whose consumer refuses some messages once. */
public final class Main {
    private static final int REFUSED = 5;

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        Dialogue.run(Main::play);
    }

    private static void play(String scenario, String serviceUrl, String webUrl, String topic)
            throws Exception {
        configure(serviceUrl, topic);
        System.setProperty("scenario", scenario);
        try (WeldContainer container = new Weld().initialize()) {
            container.select(Channels.class).get().play();
        }
    }

    private static void configure(String serviceUrl, String topic) {
        for (String channel : List.of("incoming.in", "outgoing.out")) {
            String prefix = "mp.messaging." + channel + ".";
            System.setProperty(prefix + "connector", "smallrye-pulsar");
            System.setProperty(prefix + "serviceUrl", serviceUrl);
            System.setProperty(prefix + "topic", topic);
            System.setProperty(prefix + "schema", "STRING");
        }
        Map.of(
                "subscriptionName", "s",
                "subscriptionType", "Shared",
                "subscriptionInitialPosition", "Earliest",
                "negativeAckRedeliveryDelayMicros", "1000000",
                "failure-strategy", "nack")
                .forEach((key, value) -> System.setProperty("mp.messaging.incoming.in." + key, value));
    }

    /** The bean with both channels; a new container, and bean, for each scenario. */
    @ApplicationScoped
    public static class Channels {
        @Inject
        @Channel("out")
        MutinyEmitter<String> emitter;

        private final String scenario = System.getProperty("scenario");
        private final CountDownLatch left = new CountDownLatch(
                Dialogue.MESSAGES + (scenario.equals("redelivery") ? REFUSED : 0));
        private final List<org.apache.pulsar.client.api.Message<String>> received =
                new ArrayList<>();

        /** Called by the container for each message. */
        @Incoming("in")
        @SuppressWarnings("unchecked")
        public CompletionStage<Void> consume(Message<String> message) {
            org.apache.pulsar.client.api.Message<String> seen =
                    (org.apache.pulsar.client.api.Message<String>)
                            message.getMetadata(PulsarIncomingMessageMetadata.class)
                                    .orElseThrow()
                                    .getMessage();
            synchronized (received) {
                received.add(seen);
            }
            left.countDown();
            return Dialogue.isRefused(scenario, seen)
                    ? message.nack(new IllegalStateException("refused once"))
                    : message.ack();
        }

        void play() throws InterruptedException {
            for (int number = 0; number < Dialogue.MESSAGES; number++) {
                PulsarOutgoingMessageMetadata metadata = PulsarOutgoingMessageMetadata.builder()
                        .withKey(Dialogue.key(number))
                        .withProperties(Map.of("number", Integer.toString(number)))
                        .build();
                emitter.sendMessage(Message.of(Dialogue.text(number)).addMetadata(metadata))
                        .await()
                        .atMost(Duration.ofSeconds(Dialogue.WAIT_SECONDS));
            }
            if (!left.await(Dialogue.WAIT_SECONDS, TimeUnit.SECONDS)) {
                throw new IllegalStateException(left.getCount() + " messages did not come");
            }
            synchronized (received) {
                Dialogue.seeAll(received);
            }
        }
    }
}
