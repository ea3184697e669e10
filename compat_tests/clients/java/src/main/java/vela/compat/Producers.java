package vela.compat;

import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.PulsarClient;

/** Producers: names, sequence ids, access modes and the errors that go with them. */
final class Producers {
    private Producers() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("producer-name-in-use", Producers::nameInUse);
        scenarios.put("producer-access-modes", Producers::accessModes);
        scenarios.put("sequence-ids", Producers::sequenceIds);
        scenarios.put("names-refused", Producers::namesRefused);
    }

    private static void nameInUse(Stage stage) throws Exception {
        Producer<byte[]> first = stage.producer(stage.topic()).producerName("p").create();
        PulsarClient other = stage.newClient();
        stage.seeError("the same name again",
                () -> other.newProducer().topic(stage.topic()).producerName("p").create());
        first.close();
        stage.seeError("after the first has closed",
                () -> other.newProducer().topic(stage.topic()).producerName("p").create());
    }

    private static Producer<byte[]> create(Stage stage, ProducerAccessMode mode) throws Exception {
        return stage.producer(stage.topic()).accessMode(mode)
                .sendTimeout(3, TimeUnit.SECONDS).create();
    }

    private static void accessModes(Stage stage) throws Exception {
        Consumer<byte[]> consumer = stage.subscribe(stage.topic());
        Producer<byte[]> exclusive = create(stage, ProducerAccessMode.Exclusive);
        exclusive.send(Stage.bytes("from the exclusive one"));
        stage.see("epoch-less name is set", !exclusive.getProducerName().isEmpty());
        stage.seeError("Shared beside Exclusive", () -> create(stage, ProducerAccessMode.Shared));
        stage.seeError("Exclusive beside Exclusive",
                () -> create(stage, ProducerAccessMode.Exclusive));
        CompletableFuture<Producer<byte[]>> waiting = stage.producer(stage.topic())
                .accessMode(ProducerAccessMode.WaitForExclusive).createAsync();
        Thread.sleep(700);
        stage.see("the waiting one is there at once", waiting.isDone());
        exclusive.close();
        Producer<byte[]> waited = waiting.get(15, TimeUnit.SECONDS);
        waited.send(Stage.bytes("from the one that waited"));
        waited.close();
        Producer<byte[]> fenced = stage.producer(stage.topic("fenced"))
                .accessMode(ProducerAccessMode.Exclusive)
                .sendTimeout(5, TimeUnit.SECONDS).create();
        fenced.send(Stage.bytes("before"));
        Producer<byte[]> fencing = stage.newClient().newProducer().topic(stage.topic("fenced"))
                .accessMode(ProducerAccessMode.ExclusiveWithFencing).create();
        fencing.send(Stage.bytes("from the fencing one"));
        stage.seeError("send of the fenced one", () -> fenced.send(Stage.bytes("no")));
        Producer<byte[]> shared = create(stage, ProducerAccessMode.Shared);
        stage.seeError("Exclusive beside Shared",
                () -> create(stage, ProducerAccessMode.Exclusive));
        shared.send(Stage.bytes("from the shared one"));
        stage.see("all", Stage.texts(Stage.receiveAndAck(consumer, 3)));
    }

    private static void sequenceIds(Stage stage) throws Exception {
        Consumer<byte[]> consumer = stage.subscribe(stage.topic());
        Producer<byte[]> producer = stage.producer(stage.topic()).producerName("p").create();
        stage.see("new", producer.getLastSequenceId());
        Stage.send(producer, "", 3);
        stage.see("after three", producer.getLastSequenceId());
        producer.newMessage().value(Stage.bytes("d")).sequenceId(17).send();
        stage.see("after a given one", producer.getLastSequenceId());
        producer.close();
        Producer<byte[]> again = stage.producer(stage.topic()).producerName("p").create();
        stage.see("of a new one of the name", again.getLastSequenceId());
        again.send(Stage.bytes("e"));
        for (Message<byte[]> message : Stage.receiveAndAck(consumer, 5)) {
            stage.seeMessage("message", message);
            stage.see("producer", message.getProducerName());
        }
    }

    private static void namesRefused(Stage stage) throws Exception {
        for (String topic : List.of("persistent://no-such-tenant/ns/t",
                "persistent://public/no-such-namespace/t")) {
            stage.seeError("producer on " + topic, () -> stage.producer(topic).create());
            stage.seeError("consumer on " + topic, () -> stage.subscribe(topic));
        }
    }

}
