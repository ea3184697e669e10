package vela.peers;

import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.function.Consumer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** The stock producer with its defaults on a topic of one partition, made here and deleted. */
final class KafkaSender implements Load.Sender {
    private final KafkaProducer<byte[], byte[]> producer;
    private final Admin admin;
    private final String topic;

    KafkaSender(String url, String topic, boolean batched, boolean flush) throws Exception {
        this.topic = topic;
        admin = Admin.create(Map.of("bootstrap.servers", url));
        Map<String, String> configuration = flush ? Map.of("flush.messages", "1") : Map.of();
        NewTopic made = new NewTopic(topic, 1, (short) 1).configs(configuration);
        admin.createTopics(List.of(made)).all().get();
        Map<String, Object> settings = batched
                ? Map.of("bootstrap.servers", url)
                : Map.of("bootstrap.servers", url, "linger.ms", 0, "batch.size", 0);
        producer = new KafkaProducer<>(
                settings, new ByteArraySerializer(), new ByteArraySerializer());
        producer.partitionsFor(topic);
    }

    @Override
    public void send(byte[] payload, Consumer<Throwable> done) {
        producer.send(new ProducerRecord<>(topic, payload), (written, failure) -> done.accept(failure));
    }

    @Override
    public void close() throws Exception {
        producer.close(Duration.ZERO);
        admin.deleteTopics(List.of(topic)).all().get();
    }

    /** Reads what comes from now on, for ever. */
    static void read(
            String url, String topic, CountDownLatch subscribed, Consumer<byte[]> received) {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                Map.of("bootstrap.servers", url),
                new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            consumer.position(partition);
            subscribed.countDown();
            while (true) {
                for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofSeconds(1))) {
                    received.accept(each.value());
                }
            }
        } catch (RuntimeException failure) {
            Load.fail(failure);
        }
    }
}
