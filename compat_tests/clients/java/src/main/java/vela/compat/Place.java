package vela.compat;

import java.util.concurrent.Callable;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.TopicPolicies;

/** A namespace of the scenario's own with a topic, and the administrator's client. */
final class Place {
    private static final int IN_FORCE_SECONDS_MAX = 10;
    private static final int LOOK_MILLIS = 50;

    final Stage stage;
    final PulsarAdmin admin;
    final String namespace;
    final String topic;

    Place(Stage stage) throws Exception {
        this.stage = stage;
        this.admin = stage.admin();
        this.namespace = "public/" + stage.name();
        this.topic = "persistent://" + namespace + "/t";
        admin.namespaces().createNamespace(namespace);
        admin.topics().createNonPartitionedTopic(topic);
    }

    TopicPolicies policies() throws Exception {
        return admin.topicPolicies();
    }

    /**
     * Look until it is what is wanted: real Pulsar has a policy of a topic in force a little after
     * its answer. Adds to the trace what was seen at last.
     */
    void until(String what, Object wanted, Callable<?> look) throws Exception {
        long deadline = System.nanoTime() + IN_FORCE_SECONDS_MAX * 1_000_000_000L;
        Object seen = look.call();
        while (!String.valueOf(wanted).equals(String.valueOf(seen))
                && System.nanoTime() < deadline) {
            Thread.sleep(LOOK_MILLIS);
            seen = look.call();
        }
        stage.see(what, String.valueOf(seen));
    }

    /** The name of the client's exception, or "none". */
    static String errorOf(Callable<?> action) {
        try {
            action.call();
            return "none";
        } catch (Exception refused) {
            return Stage.nameOf(refused);
        }
    }
}
