package vela.compat;

import java.util.Map;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.client.api.schema.SchemaDefinition;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/** Schemas: registered, returned as registered, and refused when incompatible. */
final class Schemas {
    private Schemas() {
    }

    static void register(Map<String, Scenario> scenarios) {
        scenarios.put("schema-string", stage -> roundTrip(stage, Schema.STRING, "grüße"));
        scenarios.put("schema-int64", stage -> roundTrip(stage, Schema.INT64, 17L));
        scenarios.put("schema-json", stage -> person(stage, Schema.JSON(Person.class)));
        scenarios.put("schema-avro", stage -> person(stage, Schema.AVRO(Person.class)));
        scenarios.put("schema-key-value", Schemas::keyValue);
        scenarios.put("schema-incompatible", Schemas::incompatible);
        scenarios.put("schema-auto-consume", Schemas::autoConsume);
        scenarios.put("schema-versions", Schemas::versions);
    }

    /** A record with two fields. */
    public static final class Person {
        public String name;
        public int age;

        static Person of(String name, int age) {
            Person person = new Person();
            person.name = name;
            person.age = age;
            return person;
        }

        @Override
        public String toString() {
            return name + " " + age;
        }
    }

    private static final String HEAD =
            "{\"type\":\"record\",\"name\":\"Person\",\"namespace\":\"vela.compat.Schemas\","
                    + "\"fields\":[{\"name\":\"name\",\"type\":[\"null\",\"string\"],"
                    + "\"default\":null},{\"name\":\"age\",\"type\":";
    private static final String OTHER_AGE = HEAD + "\"string\"}]}";
    private static final String WITH_CITY =
            HEAD + "\"int\"},{\"name\":\"city\",\"type\":\"string\",\"default\":\"nowhere\"}]}";
    private static final String WITH_BARE_CITY =
            HEAD + "\"int\"},{\"name\":\"city\",\"type\":\"string\"}]}";

    private static Schema<Person> defined(boolean avro, String definition) {
        SchemaDefinition<Person> schema =
                SchemaDefinition.<Person>builder().withJsonDef(definition).build();
        return avro ? Schema.AVRO(schema) : Schema.JSON(schema);
    }

    private static <T> Consumer<T> subscribe(Stage stage, String topic, Schema<T> schema)
            throws Exception {
        return stage.client().newConsumer(schema).topic(topic).subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
    }

    private static <T> Producer<T> produce(Stage stage, String topic, Schema<T> schema)
            throws Exception {
        return stage.client().newProducer(schema).topic(topic).create();
    }

    private static <T> void roundTrip(Stage stage, Schema<T> schema, T value) throws Exception {
        Consumer<T> consumer = subscribe(stage, stage.topic(), schema);
        produce(stage, stage.topic(), schema).send(value);
        Message<T> message = consumer.receive();
        stage.see("value", String.valueOf(message.getValue()));
        stage.see("version", message.getSchemaVersion());
        seeRegistered(stage, stage.topic());
    }

    private static void seeRegistered(Stage stage, String topic) throws Exception {
        String answer = stage.http(
                "GET", "/admin/v2/schemas/" + topic.replace("persistent://", "") + "/schema", null);
        stage.see("registered", answer.replaceAll("\"timestamp\":\\d+,?", ""));
    }

    private static void person(Stage stage, Schema<Person> schema) throws Exception {
        roundTrip(stage, schema, Person.of("a", 1));
    }

    private static void keyValue(Stage stage) throws Exception {
        for (KeyValueEncodingType encoding : KeyValueEncodingType.values()) {
            String topic = stage.topic(encoding.name());
            Schema<KeyValue<String, Person>> schema =
                    Schema.KeyValue(Schema.STRING, Schema.JSON(Person.class), encoding);
            Consumer<KeyValue<String, Person>> consumer = subscribe(stage, topic, schema);
            produce(stage, topic, schema).send(new KeyValue<>("k", Person.of("a", 1)));
            Message<KeyValue<String, Person>> message = consumer.receive();
            stage.see("key", message.getValue().getKey());
            stage.see("value", message.getValue().getValue().toString());
            seeRegistered(stage, topic);
        }
    }

    private static void incompatible(Stage stage) throws Exception {
        for (boolean avro : new boolean[] {true, false}) {
            String topic = stage.topic(avro ? "avro" : "json");
            Schema<Person> person = avro ? Schema.AVRO(Person.class) : Schema.JSON(Person.class);
            produce(stage, topic, person).send(Person.of("a", 1));
            Schema<Person> otherAge = defined(avro, OTHER_AGE);
            stage.seeError("producer, another type", () -> produce(stage, topic, otherAge));
            stage.seeError("consumer, another type", () -> subscribe(stage, topic, otherAge));
            stage.seeError("producer of text", () -> produce(stage, topic, Schema.STRING));
            stage.seeError("consumer of text", () -> subscribe(stage, topic, Schema.STRING));
            stage.seeError("the right one after it", () -> subscribe(stage, topic, person));
            stage.seeError("producer of bytes", () -> produce(stage, topic, Schema.BYTES));
            stage.seeError("a field more without a default",
                    () -> produce(stage, topic, defined(avro, WITH_BARE_CITY)));
            stage.seeError("a field more with a default",
                    () -> produce(stage, topic, defined(avro, WITH_CITY)));
            seeRegistered(stage, topic);
        }
    }

    private static void autoConsume(Stage stage) throws Exception {
        Producer<Person> producer = produce(stage, stage.topic(), Schema.AVRO(Person.class));
        producer.send(Person.of("a", 1));
        Consumer<GenericRecord> consumer =
                subscribe(stage, stage.topic(), Schema.AUTO_CONSUME());
        GenericRecord record = consumer.receive().getValue();
        stage.see("name", record.getField("name").toString());
        stage.see("age", record.getField("age"));
        stage.see("schema type", record.getSchemaType().name());
        Producer<byte[]> auto = produce(stage, stage.topic(), Schema.AUTO_PRODUCE_BYTES());
        auto.send(Schema.AVRO(Person.class).encode(Person.of("b", 2)));
        stage.see("auto produced", consumer.receive().getValue().getField("name").toString());
    }

    private static void versions(Stage stage) throws Exception {
        Consumer<Person> consumer = subscribe(stage, stage.topic(), Schema.AVRO(Person.class));
        produce(stage, stage.topic(), Schema.AVRO(Person.class)).send(Person.of("a", 1));
        Consumer<GenericRecord> any = stage.client().newConsumer(Schema.AUTO_CONSUME())
                .topic(stage.topic()).subscriptionName("any")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        Schema<GenericRecord> newer = Schema.generic(defined(true, WITH_CITY).getSchemaInfo());
        Producer<GenericRecord> producer = produce(stage, stage.topic(), newer);
        producer.send(((org.apache.pulsar.client.api.schema.GenericSchema<GenericRecord>) newer)
                .newRecordBuilder().set("name", "b").set("age", 2).set("city", "c").build());
        for (int i = 0; i < 2; i++) {
            Message<Person> message = consumer.receive();
            stage.see("value", message.getValue().toString());
            stage.see("version", message.getSchemaVersion());
            GenericRecord record = any.receive().getValue();
            stage.see("fields", record.getFields().stream().map(field -> field.getName()).toList());
        }
    }
}
