package vela.compat;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException.ConflictException;
import org.apache.pulsar.client.api.MessageRoutingMode;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.common.policies.data.BacklogQuota;
import org.apache.pulsar.common.policies.data.PersistencePolicies;
import org.apache.pulsar.common.policies.data.TenantInfo;

/** The calls of the Pulsar driver of the OpenMessaging benchmark, in its order. */
final class Benchmark {
    private static final int MESSAGES = 1_000;

    private Benchmark() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("openmessaging-benchmark", Benchmark::play);
    }

    private static void play(Stage stage) throws Exception {
        PulsarAdmin admin = stage.admin();
        String tenant = stage.name();
        String namespace = tenant + "/ns-a1B2c3D";
        String cluster = admin.clusters().getClusters().get(0);
        stage.see("tenant is new", !admin.tenants().getTenants().contains(tenant));
        TenantInfo info = TenantInfo.builder().adminRoles(Set.of())
                .allowedClusters(Set.of(cluster)).build();
        admin.tenants().createTenant(tenant, info);
        try {
            admin.tenants().createTenant(tenant, info);
        } catch (ConflictException another) {
            stage.see("another worker was first", another.getStatusCode());
        }
        admin.namespaces().createNamespace(namespace);
        admin.namespaces().setPersistence(namespace, new PersistencePolicies(1, 1, 1, 1.0));
        admin.namespaces().setBacklogQuota(namespace, BacklogQuota.builder()
                .limitSize(-1).limitTime(-1)
                .retentionPolicy(BacklogQuota.RetentionPolicy.producer_exception).build());
        admin.namespaces().setDeduplicationStatus(namespace, false);
        stage.see("persistence", admin.namespaces().getPersistence(namespace).toString());
        stage.see("quotas", admin.namespaces().getBacklogQuotaMap(namespace).toString());
        stage.see("deduplication", admin.namespaces().getDeduplicationStatus(namespace));
        for (int partitions : new int[] {3, 1}) {
            String topic = "persistent://" + namespace + "/test-topic-" + partitions;
            if (partitions > 1) { // Otherwise the topic is created by its first client.
                admin.topics().createPartitionedTopicAsync(topic, partitions).get();
            }
            run(stage, topic);
        }
    }

    private static void run(Stage stage, String topic) throws Exception {
        PulsarClient client = stage.newClient();
        List<String> parts = client.getPartitionsForTopic(topic).get();
        stage.see("partitions", parts.size());
        CountDownLatch missing = new CountDownLatch(MESSAGES);
        ConcurrentLinkedQueue<String> received = new ConcurrentLinkedQueue<>();
        for (String part : parts) {
            client.newConsumer().topic(part).subscriptionName("sub-000")
                    .priorityLevel(0).subscriptionType(SubscriptionType.Failover)
                    .receiverQueueSize(100).messageListener((consumer, message) -> {
                        received.add(Stage.text(message));
                        consumer.acknowledgeAsync(message);
                        missing.countDown();
                    }).subscribeAsync().get();
        }
        Producer<byte[]> producer = client.newProducer().topic(topic)
                .enableBatching(true).batchingMaxPublishDelay(1, TimeUnit.MILLISECONDS)
                .batchingMaxBytes(131_072).blockIfQueueFull(true).maxPendingMessages(1_000)
                .messageRoutingMode(MessageRoutingMode.RoundRobinPartition).createAsync().get();
        List<String> sent = new ArrayList<>();
        for (int i = 0; i < MESSAGES; i++) {
            String text = "m" + i;
            sent.add(text);
            producer.newMessage().value(Stage.bytes(text)).sendAsync();
        }
        stage.see("all came", missing.await(30, TimeUnit.SECONDS));
        stage.see("each once", sorted(received).equals(sorted(sent)));
        producer.closeAsync().get();
    }

    private static List<String> sorted(Iterable<String> texts) {
        List<String> all = new ArrayList<>();
        texts.forEach(all::add);
        all.sort(null);
        return all;
    }
}
