package vela.compat;

import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerCryptoFailureAction;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.impl.crypto.MessageCryptoBc;

/** Messages through the server and back: compression, batches, chunks, encryption. */
final class Messages {
    private static final int COUNT = 40;

    private Messages() {
    }

    static void register(Map<String, Scenario> scenarios) {
        for (CompressionType compression : CompressionType.values()) {
            for (boolean batched : new boolean[] {false, true}) {
                String name = "produce-consume-" + compression.name().toLowerCase()
                        + (batched ? "-batched" : "-unbatched");
                scenarios.put(name, stage -> produceConsume(stage, compression, batched));
            }
        }
        scenarios.put("empty-and-binary-payloads", Messages::payloads);
        scenarios.put("too-big-refused", Messages::tooBig);
        scenarios.put("chunked-20-megabytes", Messages::chunked);
        scenarios.put("encrypted", Messages::encrypted);
    }

    private static void produceConsume(Stage stage, CompressionType compression, boolean batched)
            throws Exception {
        Consumer<byte[]> consumer = stage.subscribe(stage.topic());
        Producer<byte[]> producer = stage.producer(stage.topic())
                .compressionType(compression)
                .enableBatching(batched)
                .batchingMaxMessages(15)
                .batchingMaxPublishDelay(1, TimeUnit.SECONDS)
                .create();
        for (int i = 0; i < COUNT; i++) {
            TypedMessageBuilder<byte[]> message = producer.newMessage()
                    .value(Stage.bytes(("text " + i + " ").repeat(i + 1)))
                    .property("number", Integer.toString(i))
                    .property("ä", "ö");
            if (i % 2 == 1) {
                message.key("key-" + i % 3);
            }
            if (i % 5 == 0) {
                message.orderingKey(new byte[] {0, (byte) 255});
            }
            if (i % 4 == 0) {
                message.eventTime(1_700_000_000_000L + i);
            }
            if (i == 7) {
                message.keyBytes(new byte[] {(byte) 200, 0, 1});
            }
            message.sendAsync();
        }
        producer.flush();
        for (Message<byte[]> message : Stage.receiveAndAck(consumer, COUNT)) {
            stage.seeMessage("message", message);
            stage.see("key is base64", message.hasBase64EncodedKey());
        }
        stage.see("more", Stage.texts(Stage.untilSilence(consumer, 200)));
    }

    private static void payloads(Stage stage) throws Exception {
        Consumer<byte[]> consumer = stage.subscribe(stage.topic());
        Producer<byte[]> producer = stage.producer(stage.topic()).create();
        byte[] large = new byte[1_000_000];
        Arrays.fill(large, (byte) 'x');
        for (byte[] payload : new byte[][] {{}, new byte[10], large}) {
            producer.send(payload);
        }
        producer.newMessage().value(null).key("without a value").send();
        for (Message<byte[]> message : Stage.receiveAndAck(consumer, 4)) {
            stage.see("message", Stage.textOf(message.getData() == null
                    ? Stage.bytes("none") : message.getData()));
            stage.see("key", message.getKey());
        }
    }

    private static void tooBig(Stage stage) throws Exception {
        Producer<byte[]> producer = stage.producer(stage.topic()).create();
        stage.seeError("six megabytes", () -> producer.send(new byte[6_000_000]));
        stage.seeError("small one after it", () -> producer.send(new byte[6]));
    }

    private static void chunked(Stage stage) throws Exception {
        Consumer<byte[]> consumer = stage.subscribe(stage.topic());
        Producer<byte[]> producer =
                stage.producer(stage.topic()).enableChunking(true).create();
        byte[] content = new byte[20 * 1024 * 1024];
        new Random(7).nextBytes(content);
        producer.newMessage().value(content).property("size", "20 MB").send();
        producer.send(Stage.bytes("after it"));
        for (Message<byte[]> message : Stage.receiveAndAck(consumer, 2)) {
            stage.seeMessage("message", message);
        }
    }

    private static void encrypted(Stage stage) throws Exception {
        String publicKey = "file://" + stage.keys + "/public.pem";
        String privateKey = "file://" + stage.keys + "/private.pem";
        Consumer<byte[]> consumer = stage.consumer(stage.topic(), SubscriptionType.Exclusive)
                .defaultCryptoKeyReader(privateKey)
                .messageCrypto(new MessageCryptoBc("consumer", false))
                .subscribe();
        Consumer<byte[]> withoutKey = stage.consumer(stage.topic(), SubscriptionType.Exclusive)
                .subscriptionName("no-key")
                .cryptoFailureAction(ConsumerCryptoFailureAction.CONSUME)
                .subscribe();
        for (boolean batched : new boolean[] {false, true}) {
            Producer<byte[]> producer = stage.producer(stage.topic())
                    .enableBatching(batched)
                    .batchingMaxPublishDelay(1, TimeUnit.SECONDS)
                    .compressionType(CompressionType.LZ4)
                    .addEncryptionKey("the-key")
                    .defaultCryptoKeyReader(publicKey)
                    .create();
            Stage.send(producer, "secret " + batched + " ", 5);
            producer.close();
        }
        for (Message<byte[]> message : Stage.receiveAndAck(consumer, 10)) {
            stage.seeMessage("decrypted", message);
        }
        for (Message<byte[]> message : Stage.receiveAndAck(withoutKey, 6)) {
            Stage.check(!Stage.text(message).contains("secret"), "it was not encrypted");
            stage.see("key names", message.getEncryptionCtx().get().getKeys().keySet());
        }
    }
}
