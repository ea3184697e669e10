package vela.compat;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.schema.SchemaType;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.pulsar.annotation.PulsarListener;
import org.springframework.pulsar.core.PulsarTemplate;

/** Spring Boot: a template that sends and a listener that refuses some messages once. */
@SpringBootApplication
public class Main {
    private static final int REFUSED = 5;

    private final String scenario;
    private final CountDownLatch left;
    private final List<Message<String>> received = new ArrayList<>();

    public Main(@Value("${scenario}") String scenario) {
        this.scenario = scenario;
        int more = scenario.equals("redelivery") ? REFUSED : 0;
        this.left = new CountDownLatch(Dialogue.MESSAGES + more);
    }

    public static void main(String[] arguments) throws Exception {
        Dialogue.run(Main::play);
    }

    private static void play(String scenario, String serviceUrl, String webUrl, String topic)
            throws Exception {
        SpringApplication application = new SpringApplication(Main.class);
        application.setDefaultProperties(Map.of(
                "scenario", scenario,
                "topic", topic,
                "spring.main.banner-mode", "off",
                "spring.pulsar.client.service-url", serviceUrl,
                "spring.pulsar.admin.service-url", webUrl));
        try (ConfigurableApplicationContext context = application.run()) {
            PulsarTemplate<String> template = context.getBean(PulsarTemplate.class);
            for (int number = 0; number < Dialogue.MESSAGES; number++) {
                int current = number;
                template.newMessage(Dialogue.text(number))
                        .withTopic(topic)
                        .withMessageCustomizer(message -> message
                                .key(Dialogue.key(current))
                                .property("number", Integer.toString(current)))
                        .send();
            }
            context.getBean(Main.class).seeAll();
        }
    }

    /** Called by the container; an exception refuses the message. */
    @PulsarListener(
            topics = "${topic}",
            subscriptionName = "s",
            subscriptionType = SubscriptionType.Shared,
            schemaType = SchemaType.STRING,
            properties = {
                "subscriptionInitialPosition=Earliest",
                "negativeAckRedeliveryDelayMicros=1000000"
            })
    public void listen(Message<String> message) {
        synchronized (received) {
            received.add(message);
        }
        left.countDown();
        if (Dialogue.isRefused(scenario, message)) {
            throw new IllegalStateException("refused once");
        }
    }

    private void seeAll() throws InterruptedException {
        if (!left.await(Dialogue.WAIT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " messages did not come");
        }
        synchronized (received) {
            Dialogue.seeAll(received);
        }
    }
}
