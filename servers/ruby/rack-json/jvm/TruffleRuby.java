import java.io.File;
import org.graalvm.polyglot.Context;
import org.graalvm.polyglot.Source;

/** Runs one Ruby program on TruffleRuby, which has no launcher of its own on Maven Central. */
public final class TruffleRuby {
    public static void main(String[] arguments) throws Exception {
        try (Context context = Context.newBuilder("ruby")
                .allowAllAccess(true)
                .option("engine.WarnInterpreterOnly", "false")
                // Ruby runs as a program, not as a guest, and so has threads, signals and native
                // extensions.
                .option("ruby.single-threaded", "false")
                .option("ruby.embedded", "false")
                .option("ruby.load-paths", System.getenv("RUBYLIB").replace(':', ','))
                .build()) {
            context.eval(Source.newBuilder("ruby", new File(arguments[0])).build());
        }
    }
}
