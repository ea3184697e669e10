package vela.compat;

import java.util.HashMap;
import java.util.Map;
import org.apache.pulsar.client.api.MessageId;

/**
 * The numbers of a message id, read from its bytes (MessageIdData of PulsarApi.proto), because the
 * client 2.8.4 has no interface with getters.
 */
final class IdFields {
    private static final int PARTITION = 3;
    private static final int BATCH_INDEX = 4;
    private static final int BATCH_SIZE = 6;

    private final Map<Integer, Long> numbers = new HashMap<>();
    private final byte[] bytes;
    private int position;

    IdFields(MessageId id) {
        bytes = id.toByteArray();
        while (position < bytes.length) {
            int tag = (int) number();
            int wireType = tag & 7;
            if (wireType == 0) {
                numbers.put(tag >>> 3, number());
            } else if (wireType == 2) {
                int length = (int) number();
                position += length;
            } else {
                throw new IllegalStateException("a message id has a field of wire type " + wireType);
            }
        }
    }

    int partition() {
        return of(PARTITION, -1);
    }

    int batchIndex() {
        return of(BATCH_INDEX, -1);
    }

    int batchSize() {
        return of(BATCH_SIZE, 0);
    }

    private int of(int field, int missing) {
        return (int) (long) numbers.getOrDefault(field, (long) missing);
    }

    private long number() {
        long value = 0;
        for (int shift = 0;; shift += 7) {
            byte part = bytes[position++];
            value |= (long) (part & 0x7f) << shift;
            if (part >= 0) {
                return value;
            }
        }
    }
}
