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

/** Reads one request per line and runs the scenario it names; see driver.py for the dialogue. */
public final class Main {
    private static final Map<String, Scenario> SCENARIOS = new TreeMap<>();

    static {
        Backlogs.register(SCENARIOS);
        Behaviour.register(SCENARIOS);
        Benchmark.register(SCENARIOS);
        Expiry.register(SCENARIOS);
        Limits.register(SCENARIOS);
        PolicyValues.register(SCENARIOS);
        Rates.register(SCENARIOS);
        Messages.register(SCENARIOS);
        Subscriptions.register(SCENARIOS);
        Acknowledgement.register(SCENARIOS);
        Positions.register(SCENARIOS);
        Producers.register(SCENARIOS);
        Schemas.register(SCENARIOS);
        Connector.register(SCENARIOS);
        Topics.register(SCENARIOS);
        Refusals.register(SCENARIOS);
        Restarts.register(SCENARIOS);
        Broadcast.register(SCENARIOS);
        Credentials.register(SCENARIOS);
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
