// Helidon's routing, as in its guide. A request runs on the virtual thread of its connection.

import io.helidon.common.Version;
import io.helidon.http.HeaderNames;
import io.helidon.http.HeaderValues;
import io.helidon.webserver.CloseConnectionException;
import io.helidon.webserver.WebServer;
import io.helidon.webserver.http.FilterChain;
import io.helidon.webserver.http.RoutingRequest;
import io.helidon.webserver.http.RoutingResponse;

public class Hello {
    // Helidon 4.5.0 sends "Connection: close" but keeps the connection open (its issue 12324). The
    // exception closes the connection after the response is sent.
    private static void close(FilterChain chain, RoutingRequest request, RoutingResponse response) {
        chain.proceed();
        if (request.headers().contains(HeaderValues.CONNECTION_CLOSE)) {
            throw new CloseConnectionException("the client asked for it");
        }
    }

    public static void main(String[] args) {
        if (args.length > 0 && args[0].equals("--version")) {
            System.out.println("Helidon " + Version.VERSION + ", "
                    + System.getProperty("java.vm.name") + " " + Runtime.version());
            return;
        }
        WebServer.builder()
                .host(System.getenv("HOST"))
                .port(Integer.parseInt(System.getenv("PORT")))
                .routing(routing -> routing
                        .addFilter(Hello::close)
                        .get("/", (request, response) -> {
                            response.header(HeaderNames.CONTENT_TYPE, "text/plain");
                            response.send("Hello, World!");
                        }))
                .build()
                .start();
    }
}
