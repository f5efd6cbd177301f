// Undertow without servlets: a handler that never blocks and so runs on the I/O thread.

import io.undertow.Handlers;
import io.undertow.Undertow;
import io.undertow.UndertowOptions;
import io.undertow.Version;
import io.undertow.server.HttpServerExchange;
import io.undertow.util.Headers;

public class Hello {
    private static void answer(HttpServerExchange exchange) {
        exchange.getResponseHeaders().put(Headers.CONTENT_TYPE, "text/plain");
        exchange.getResponseSender().send("Hello, World!");
    }

    public static void main(String[] args) {
        if (args.length > 0 && args[0].equals("--version")) {
            System.out.println(Version.getFullVersionString() + ", "
                    + System.getProperty("java.vm.name") + " " + Runtime.version());
            return;
        }
        Undertow.builder()
                .addHttpListener(Integer.parseInt(System.getenv("PORT")), "0.0.0.0")
                .setIoThreads(Integer.parseInt(System.getenv("CPUS")))
                .setServerOption(UndertowOptions.ENABLE_HTTP2, true)
                .setHandler(Handlers.path().addExactPath("/", Hello::answer))
                .build()
                .start();
    }
}
