// A Vert.x verticle, whose instances share the port. Each instance has its own event loop.

import io.vertx.core.AbstractVerticle;
import io.vertx.core.DeploymentOptions;
import io.vertx.core.Promise;
import io.vertx.core.Vertx;
import io.vertx.core.VertxOptions;
import io.vertx.core.http.HttpServerOptions;
import io.vertx.core.http.HttpServerRequest;
import io.vertx.core.impl.launcher.commands.VersionCommand;
import io.vertx.core.net.PemKeyCertOptions;

public class Hello extends AbstractVerticle {
    private static void answer(HttpServerRequest request) {
        if (request.path().equals("/")) {
            request.response().putHeader("content-type", "text/plain").end("Hello, World!");
        } else {
            request.response().setStatusCode(404).end();
        }
    }

    @Override
    public void start(Promise<Void> started) {
        HttpServerOptions options = new HttpServerOptions();
        if (System.getenv("TLS_CERT") != null) {
            options.setSsl(true).setUseAlpn(true).setKeyCertOptions(new PemKeyCertOptions()
                    .setCertPath(System.getenv("TLS_CERT"))
                    .setKeyPath(System.getenv("TLS_KEY")));
        }
        vertx.createHttpServer(options)
                .requestHandler(Hello::answer)
                .listen(Integer.parseInt(System.getenv("PORT")), System.getenv("HOST"))
                .<Void>mapEmpty()
                .onComplete(started);
    }

    public static void main(String[] args) {
        if (args.length > 0 && args[0].equals("--version")) {
            System.out.println("Vert.x " + VersionCommand.getVersion() + ", "
                    + System.getProperty("java.vm.name") + " " + Runtime.version());
            return;
        }
        int cpus = Integer.parseInt(System.getenv("CPUS"));
        Vertx vertx = Vertx.vertx(new VertxOptions().setEventLoopPoolSize(cpus));
        vertx.deployVerticle(Hello.class, new DeploymentOptions().setInstances(cpus))
                .onFailure(cause -> {
                    System.err.println(cause);
                    System.exit(1);
                });
    }
}
