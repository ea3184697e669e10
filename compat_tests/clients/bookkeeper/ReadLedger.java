import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.bookkeeper.client.BookKeeper;
import org.apache.bookkeeper.client.LedgerHandle;
import org.apache.bookkeeper.client.api.BKException;
import org.apache.bookkeeper.client.api.DigestType;
import org.apache.bookkeeper.client.api.LedgerEntries;
import org.apache.bookkeeper.client.api.LedgerEntry;
import org.apache.bookkeeper.client.api.ReadHandle;
import org.apache.bookkeeper.conf.ClientConfiguration;
import org.apache.pulsar.metadata.api.MetadataStoreConfig;
import org.apache.pulsar.metadata.api.extended.MetadataStoreExtended;
import org.apache.pulsar.metadata.bookkeeper.PulsarMetadataClientDriver;

/**
 * The stock BookKeeper client reads a ledger from a bookie, in both wire protocols.
 *
 * <p>It gets its metadata from a store in its own memory, into which the caller's ledger metadata is
 * put. Prints one line per step: the name of the step and what came of it.
 *
 * <p>Arguments: bookie (host:port), ledger id, its last entry, path and metadata (hexadecimal) of the closed
 * ledger, the same as an open ledger, and whether to try to take the ledger over.
 */
public class ReadLedger {
    public static void main(String[] args) throws Exception {
        String bookie = args[0];
        long ledgerId = Long.parseLong(args[1]);
        long last = Long.parseLong(args[2]);
        String path = args[3];
        byte[] closed = HexFormat.of().parseHex(args[4]);
        byte[] open = HexFormat.of().parseHex(args[5]);
        boolean takeOver = Boolean.parseBoolean(args[6]);
        PulsarMetadataClientDriver.init();
        for (boolean v2 : new boolean[] {true, false}) {
            String wire = v2 ? "v2" : "v3";
            try (MetadataStoreExtended store = storeWith(bookie, path, closed)) {
                try (BookKeeper client = clientOf(store, v2)) {
                    read(client, wire, ledgerId, last);
                }
            }
            try (MetadataStoreExtended store = storeWith(bookie, path, open)) {
                try (BookKeeper client = clientOf(store, v2)) {
                    tail(client, wire, ledgerId, last);
                    if (takeOver) {
                        takeOver(client, wire, ledgerId);
                    }
                }
            }
        }
        System.exit(0);
    }

    private static MetadataStoreExtended storeWith(String bookie, String path, byte[] metadata) throws Exception {
        MetadataStoreExtended store =
                MetadataStoreExtended.create("memory:local", MetadataStoreConfig.builder().build());
        store.put("/ledgers/INSTANCEID", "compat".getBytes(), Optional.empty()).join();
        store.put("/ledgers/available/" + bookie, new byte[0], Optional.empty()).join();
        store.put(path, metadata, Optional.empty()).join();
        return store;
    }

    private static BookKeeper clientOf(MetadataStoreExtended store, boolean v2) throws Exception {
        ClientConfiguration configuration = new ClientConfiguration();
        configuration.setMetadataServiceUri("metadata-store:memory:local");
        configuration.setProperty("metadata-store-instance", store);
        configuration.setUseV2WireProtocol(v2);
        configuration.setBatchReadEnabled(true);
        configuration.setReadEntryTimeout(10);
        return new BookKeeper(configuration);
    }

    private static ReadHandle open(BookKeeper client, long ledgerId, boolean recovery) throws Exception {
        return client.newOpenLedgerOp()
                .withLedgerId(ledgerId)
                .withDigestType(DigestType.CRC32C)
                .withPassword(new byte[0])
                .withRecovery(recovery)
                .execute()
                .get();
    }

    private static void read(BookKeeper client, String wire, long ledgerId, long last) throws Exception {
        try (ReadHandle ledger = open(client, ledgerId, false)) {
            say(wire, "closed ledger ends", () -> String.valueOf(ledger.getLastAddConfirmed()));
            say(wire, "single reads", () -> digestOf(ledger.read(0, last)));
            say(wire, "batch reads", () -> {
                StringBuilder told = new StringBuilder();
                for (long first = 0; first <= last; ) {
                    int count = 0;
                    LedgerEntries entries = ledger.batchRead(first, 10_000, 20_000);
                    for (LedgerEntry each : entries) {
                        count += each.getEntryId() == first + count ? 1 : 1_000_000;
                    }
                    entries.close();
                    told.append(count).append(' ');
                    first += count;
                }
                return told.toString();
            });
            say(wire, "batch read of all", () -> digestOf(ledger.batchRead(0, (int) last + 1, 5_000_000)));
            say(wire, "beyond the end", () -> digestOf(ledger.readUnconfirmed(last, last + 1)));
        }
    }

    private static void tail(BookKeeper client, String wire, long ledgerId, long last) throws Exception {
        try (ReadHandle ledger = open(client, ledgerId, false)) {
            say(wire, "open ledger is confirmed to", () -> String.valueOf(ledger.readLastAddConfirmed()));
            say(wire, "tried last confirmed", () -> String.valueOf(ledger.tryReadLastAddConfirmed()));
            say(wire, "unconfirmed read", () -> digestOf(ledger.readUnconfirmed(0, last)));
            if (wire.equals("v3")) {
                say(wire, "long poll", () -> {
                    var found = ledger.readLastAddConfirmedAndEntry(1, 1000, false);
                    return found.getLastAddConfirmed() + " " + found.getEntry().getEntryId();
                });
                say(wire, "explicit last confirmed",
                        () -> String.valueOf(((LedgerHandle) ledger).readExplicitLastConfirmed()));
            }
            say(wire, "bookie info", () -> String.valueOf(client.getBookieInfo().size()));
        }
    }

    private static void takeOver(BookKeeper client, String wire, long ledgerId) {
        say(wire, "recovery", () -> {
            open(client, ledgerId, true).close();
            return "taken over";
        });
    }

    private static String digestOf(LedgerEntries entries) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        int count = 0;
        for (LedgerEntry each : entries) {
            digest.update(each.getEntryBytes());
            count++;
        }
        entries.close();
        return count + " " + HexFormat.of().formatHex(digest.digest());
    }

    private static void say(String wire, String step, Callable<String> call) {
        String outcome;
        try {
            outcome = call.call();
        } catch (Exception failure) {
            Throwable cause = failure;
            while ((cause instanceof ExecutionException || cause instanceof CompletionException) && cause.getCause() != null) {
                cause = cause.getCause();
            }
            outcome = cause instanceof BKException
                    ? BKException.codeLogger(((BKException) cause).getCode()).toString()
                    : cause.toString();
        }
        System.out.println("> " + wire + " " + step + ": " + outcome);
    }
}
