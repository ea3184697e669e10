package vela.peers;

import java.nio.ByteBuffer;
import java.util.List;
import java.util.Locale;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.Recorder;

/**
 * Load for Kafka and for brokers that speak Pulsar's protocol. Prints one JSON object a line.
 *
 * <pre>
 * publish kafka|pulsar URL TOPIC BYTES RATE batched|unbatched WINDOW_SECONDS [flush]
 * fanout URL TOPIC CONSUMERS MESSAGES BYTES
 * </pre>
 *
 * `publish` goes on until its input ends; a rate of 0 is full speed, and any other rate begins after
 * a window of warming up. `flush` gives a topic of Kafka
 * `flush.messages=1`. `fanout` has consumers of Kafka that all read one partition, and publishes
 * when it has read a line. It is the twin of the Go program beside.
 */
public final class Load {
    private static final int OUTSTANDING_MAX = 10_000;
    private static final int WARM_UP_MESSAGES = 5;
    private static final long DELIVERY_NANOS_MAX = TimeUnit.SECONDS.toNanos(30);

    /** Publishes one message; `done` gets null, or why it failed. */
    interface Sender extends AutoCloseable {
        void send(byte[] payload, Consumer<Throwable> done);

        /** Also deletes the topic, where that is done by its protocol. */
        @Override
        void close() throws Exception;
    }

    private volatile boolean ended;
    private final Semaphore room = new Semaphore(OUTSTANDING_MAX);
    private final LongAdder done = new LongAdder();
    private final Recorder latencies = new Recorder(3);

    public static void main(String[] given) throws Exception {
        if (given.length >= 8 && given[0].equals("publish")) {
            boolean batched = given[6].equals("batched");
            Sender sender = given[1].equals("kafka")
                    ? new KafkaSender(given[2], given[3], batched, given.length > 8)
                    : new PulsarSender(given[2], given[3], batched, OUTSTANDING_MAX);
            new Load().publish(sender, Integer.parseInt(given[4]), Long.parseLong(given[5]),
                    (long) (Double.parseDouble(given[7]) * 1e9));
        } else if (given.length == 6 && given[0].equals("fanout")) {
            new Load().fanout(given[1], given[2], Integer.parseInt(given[3]),
                    Integer.parseInt(given[4]), Integer.parseInt(given[5]));
        } else {
            throw new IllegalArgumentException("see the comment at the top of Load.java");
        }
        System.exit(0);
    }

    /** Ends the program: a figure of a run that had an error does not count. */
    static void fail(Throwable failure) {
        failure.printStackTrace();
        Runtime.getRuntime().halt(1);
    }

    private static Thread start(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    private static void tell(String format, Object... figures) {
        System.out.println(String.format(Locale.ROOT, format, figures));
    }

    private void publish(Sender sender, int bytes, long rate, long windowNanos) throws Exception {
        CountDownLatch inputEnded = new CountDownLatch(1);
        start(() -> {
            try {
                System.in.transferTo(java.io.OutputStream.nullOutputStream());
            } catch (java.io.IOException failure) {
                fail(failure);
            }
            inputEnded.countDown();
        });
        long begun = System.nanoTime();
        Thread sending = start(() -> {
            if (rate > 0) {
                warmUp(sender, new byte[bytes], begun + windowNanos);
            }
            sendAll(sender, new byte[bytes], rate);
        });
        for (long next = begun + windowNanos;
                !inputEnded.await(next - System.nanoTime(), TimeUnit.NANOSECONDS);
                next += windowNanos) {
            String latency = "";
            if (rate > 0) {
                Histogram window = latencies.getIntervalHistogram();
                latency = String.format(Locale.ROOT, ", \"p50 ms\": %.6f, \"p99 ms\": %.6f",
                        window.getValueAtPercentile(50) / 1e6,
                        window.getValueAtPercentile(99) / 1e6);
            }
            tell("{\"messages\": %d, \"seconds\": %.6f%s}",
                    done.sum(), (System.nanoTime() - begun) / 1e9, latency);
        }
        ended = true;
        room.release();
        sending.join();
        sender.close();
    }

    /** One message after the other, as fast as their receipts come: no queue is left. */
    private void warmUp(Sender sender, byte[] payload, long end) {
        Semaphore answered = new Semaphore(0);
        while (System.nanoTime() < end && !ended) {
            sender.send(payload, failure -> {
                if (failure != null) {
                    fail(failure);
                }
                done.increment();
                answered.release();
            });
            answered.acquireUninterruptibly();
        }
    }

    /** Until the program ends. A message that could not be sent when it was due is late from then on. */
    private void sendAll(Sender sender, byte[] payload, long rate) {
        long begun = System.nanoTime();
        for (long index = 0; !ended; index++) {
            room.acquireUninterruptibly();
            long at = System.nanoTime();
            if (rate > 0) {
                long due = begun + index * 1_000_000_000L / rate;
                if (at >= due) {
                    at = due;
                } else {
                    while (System.nanoTime() < due) {
                        LockSupport.parkNanos(due - System.nanoTime());
                    }
                    at = System.nanoTime();
                }
            }
            long from = at;
            sender.send(payload, failure -> {
                if (ended) {
                    return; // what waits then is given up
                }
                if (failure != null) {
                    fail(failure);
                }
                if (rate > 0) {
                    latencies.recordValue(Math.max(0, System.nanoTime() - from));
                }
                done.increment();
                room.release();
            });
        }
    }

    private void fanout(String url, String topic, int consumers, int messages, int bytes)
            throws Exception {
        KafkaSender sender = new KafkaSender(url, topic, false, false);
        CountDownLatch subscribed = new CountDownLatch(consumers);
        long begun = System.nanoTime();
        for (int index = 0; index < consumers; index++) {
            start(() -> KafkaSender.read(url, topic, subscribed, payload -> {
                latencies.recordValue(
                        Math.max(0, System.nanoTime() - ByteBuffer.wrap(payload).getLong()));
                done.increment();
            }));
        }
        subscribed.await();
        tell("{\"subscribed s\": %.6f}", (System.nanoTime() - begun) / 1e9);
        Scanner input = new Scanner(System.in);
        for (int count : List.of(WARM_UP_MESSAGES, messages)) {
            input.nextLine();
            done.reset();
            latencies.getIntervalHistogram();
            for (int index = 0; index < count; index++) {
                byte[] payload = new byte[bytes];
                ByteBuffer.wrap(payload).putLong(System.nanoTime());
                sender.send(payload, failure -> {
                    if (failure != null) {
                        fail(failure);
                    }
                });
                Thread.sleep(1000);
            }
            long expected = (long) count * consumers;
            long end = System.nanoTime() + DELIVERY_NANOS_MAX;
            while (done.sum() < expected && System.nanoTime() < end) {
                Thread.sleep(10);
            }
            Histogram all = latencies.getIntervalHistogram();
            tell("{\"messages\": %d, \"lost\": %d, \"p50 s\": %.6f, \"p99 s\": %.6f,"
                            + " \"max s\": %.6f}",
                    count, expected - done.sum(), all.getValueAtPercentile(50) / 1e9,
                    all.getValueAtPercentile(99) / 1e9, all.getMaxValue() / 1e9);
        }
        sender.close();
    }
}
