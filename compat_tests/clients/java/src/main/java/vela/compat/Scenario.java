package vela.compat;

/** One scenario: told what happens through the stage, free to throw. */
@FunctionalInterface
interface Scenario {
    void play(Stage stage) throws Exception;
}
