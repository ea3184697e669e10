package vela.compat;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pulsar.client.api.Message;

/** The dialogue with driver.py: a request in each line, observations, and an end. */
final class Dialogue {
    static final int MESSAGES = 20;
    static final int WAIT_SECONDS = 40;

    /** Plays a scenario of this name on a server, on a topic of its own. */
    interface Player {
        void play(String scenario, String serviceUrl, String webUrl, String topic) throws Exception;
    }

    private static final Gson GSON = new Gson();
    private static final PrintStream ANSWERS =
            new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private Dialogue() {
    }

    static void run(Player player) throws Exception {
        System.setOut(System.err);
        BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = requests.readLine()) != null) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            JsonObject end = new JsonObject();
            try {
                player.play(
                        request.get("scenario").getAsString(),
                        request.get("service_url").getAsString(),
                        request.get("web_url").getAsString(),
                        "persistent://" + request.get("topic").getAsString());
                end.addProperty("end", "ok");
            } catch (Throwable failure) {
                StringWriter why = new StringWriter();
                failure.printStackTrace(new PrintWriter(why));
                String text = why.toString();
                end.addProperty("end", "failed");
                end.addProperty("why", text.substring(0, Math.min(text.length(), 3000)));
            }
            ANSWERS.println(GSON.toJson(end));
        }
        System.exit(0);
    }

    static synchronized void see(String what, Object value) {
        JsonArray event = new JsonArray();
        event.add(what);
        event.add(GSON.toJsonTree(value));
        ANSWERS.println(GSON.toJson(event));
    }

    /** Every message, those of a later delivery last, in the order of their numbers. */
    static void seeAll(List<Message<String>> messages) {
        messages.stream()
                .sorted(Comparator.<Message<String>>comparingInt(Message::getRedeliveryCount)
                        .thenComparingInt(each -> Integer.parseInt(each.getProperty("number"))))
                .forEach(each -> seeMessage("message", each));
    }

    private static void seeMessage(String what, Message<String> message) {
        Map<String, Object> form = new TreeMap<>();
        form.put("data", message.getValue());
        form.put("key", message.getKey());
        form.put("number", message.getProperty("number"));
        form.put("redelivery_count", message.getRedeliveryCount());
        see(what, form);
    }

    static String text(int number) {
        return "message " + number;
    }

    static String key(int number) {
        return "key " + number % 3;
    }

    /** Whether a scenario with refusals refuses this message at its first delivery. */
    static boolean isRefused(String scenario, Message<String> message) {
        return scenario.equals("redelivery")
                && message.getRedeliveryCount() == 0
                && Integer.parseInt(message.getProperty("number")) % 4 == 0;
    }
}
