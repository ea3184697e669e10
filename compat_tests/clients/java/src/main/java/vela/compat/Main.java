package vela.compat;

import com.google.gson.Gson;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;

/** Reads one request per line and runs the scenario it names; see driver.py for the dialogue. */
public final class Main {
    private static final Map<String, Scenario> SCENARIOS = new TreeMap<>();

    static {
        register(Backlogs::register);
        register(Behaviour::register);
        register(Benchmark::register);
        register(Expiry::register);
        register(Limits::register);
        register(PolicyValues::register);
        register(Rates::register);
        register(Messages::register);
        register(Subscriptions::register);
        register(Acknowledgement::register);
        register(Positions::register);
        register(Producers::register);
        register(Schemas::register);
        register(Connector::register);
        register(Topics::register);
        register(Refusals::register);
        register(Restarts::register);
        register(Broadcast::register);
        register(Credentials::register);
    }

    /** Those of a class that uses what an older client lacks are left out; to play one fails. */
    private static void register(Consumer<Map<String, Scenario>> scenarios) {
        try {
            scenarios.accept(SCENARIOS);
        } catch (LinkageError lacking) {
            System.err.println("left out: " + lacking);
        }
    }

    private Main() {
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        if (arguments.length == 1 && arguments[0].equals("list")) {
            SCENARIOS.keySet().forEach(answers::println);
            return;
        }
        BufferedReader requests =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = requests.readLine()) != null) {
            JsonObject request = JsonParser.parseString(line).getAsJsonObject();
            String name = request.get("scenario").getAsString();
            JsonObject end = new JsonObject();
            try (Stage stage = new Stage(request, requests, answers)) {
                Scenario scenario = SCENARIOS.get(name);
                if (scenario == null) {
                    throw new IllegalArgumentException("no scenario is called " + name);
                }
                scenario.play(stage);
                end.addProperty("end", "ok");
            } catch (Throwable failure) {
                StringWriter why = new StringWriter();
                failure.printStackTrace(new PrintWriter(why));
                String text = why.toString();
                end.addProperty("end", "failed");
                end.addProperty("why", text.substring(0, Math.min(text.length(), 3000)));
            }
            answers.println(new Gson().toJson(end));
        }
        System.exit(0);
    }
}
