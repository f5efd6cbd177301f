// Vert.x Web with its reactive client for PostgreSQL: each verticle has an event loop and a pool.

import io.vertx.core.AbstractVerticle;
import io.vertx.core.DeploymentOptions;
import io.vertx.core.Future;
import io.vertx.core.Promise;
import io.vertx.core.Vertx;
import io.vertx.core.VertxOptions;
import io.vertx.core.impl.launcher.commands.VersionCommand;
import io.vertx.core.json.JsonArray;
import io.vertx.core.json.JsonObject;
import io.vertx.ext.web.Router;
import io.vertx.ext.web.RoutingContext;
import io.vertx.ext.web.templ.freemarker.FreeMarkerTemplateEngine;
import io.vertx.pgclient.PgBuilder;
import io.vertx.pgclient.PgConnectOptions;
import io.vertx.sqlclient.Pool;
import io.vertx.sqlclient.PoolOptions;
import io.vertx.sqlclient.Row;
import io.vertx.sqlclient.RowSet;
import io.vertx.sqlclient.Tuple;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import java.util.zip.CRC32;

public class Server extends AbstractVerticle {
    public record Fortune(int id, String message) {}

    private static final int CPUS = Integer.parseInt(System.getenv().getOrDefault("CPUS", "1"));

    private Pool pool;
    private FreeMarkerTemplateEngine pages;
    // All rows, in the order of their ids.
    private final List<JsonObject> kept = new ArrayList<>();

    @Override
    public void start(Promise<Void> started) {
        PgConnectOptions database = PgConnectOptions.fromUri(System.getenv("DATABASE_URL"))
                .setCachePreparedStatements(true);
        int size = Integer.parseInt(System.getenv().getOrDefault("POOL_SIZE", "16"));
        pool = PgBuilder.pool().using(vertx).connectingTo(database)
                .with(new PoolOptions().setMaxSize(Math.max(1, size / CPUS)))
                .build();
        pages = FreeMarkerTemplateEngine.create(vertx, "ftl");
        Router router = Router.router(vertx);
        router.get("/json").respond(this::greet);
        router.get("/db").respond(ask -> row(Integer.parseInt(ask.queryParams().get("id"))));
        router.get("/queries").respond(ask -> rows(ask).map(JsonArray::new));
        router.post("/updates").respond(this::updates);
        router.get("/fortunes").handler(this::fortunes);
        router.get("/cached").respond(this::cached);
        router.post("/upload").respond(this::upload);
        router.get("/delay").respond(this::delay);
        pool.query("SELECT id, number FROM world ORDER BY id").execute()
                .onSuccess(rows -> rows.forEach(row -> kept.add(world(row))))
                .compose(rows -> vertx.createHttpServer().requestHandler(router)
                        .listen(Integer.parseInt(System.getenv("PORT")), System.getenv("HOST")))
                .<Void>mapEmpty()
                .onComplete(started);
    }

    private static List<Integer> numbers(RoutingContext ask, String name) {
        return Stream.of(ask.queryParams().get(name).split(",")).map(Integer::valueOf).toList();
    }

    private static JsonObject world(Row row) {
        return new JsonObject().put("id", row.getInteger(0)).put("number", row.getInteger(1));
    }

    private Future<JsonObject> row(int id) {
        return pool.preparedQuery("SELECT id, number FROM world WHERE id = $1")
                .execute(Tuple.of(id))
                .map(rows -> world(rows.iterator().next()));
    }

    private Future<List<JsonObject>> rows(RoutingContext ask) {
        List<Future<JsonObject>> rows = numbers(ask, "ids").stream().map(this::row).toList();
        return Future.all(rows).map(all -> all.<JsonObject>list());
    }

    private Future<JsonObject> greet(RoutingContext ask) {
        String message = "Hello, " + ask.queryParams().get("name") + "!";
        return Future.succeededFuture(new JsonObject().put("message", message));
    }

    private Future<JsonArray> updates(RoutingContext ask) {
        List<Integer> changed = numbers(ask, "numbers");
        return rows(ask).compose(worlds -> {
            IntStream.range(0, worlds.size())
                    .forEach(i -> worlds.get(i).put("number", changed.get(i)));
            List<Tuple> changes = worlds.stream()
                    .map(world -> Tuple.of(world.getInteger("id"), world.getInteger("number")))
                    .toList();
            return pool.preparedQuery("UPDATE world SET number = $2 WHERE id = $1")
                    .executeBatch(changes)
                    .map(new JsonArray(worlds));
        });
    }

    private void fortunes(RoutingContext ask) {
        String brought = "Brought by the request: " + ask.queryParams().get("text");
        pool.preparedQuery("SELECT id, message FROM fortune").execute()
                .compose(rows -> pages.render(page(rows, brought), "fortunes.ftl"))
                .onSuccess(page -> ask.response()
                        .putHeader("Content-Type", "text/html; charset=utf-8").end(page))
                .onFailure(ask::fail);
    }

    private static Map<String, Object> page(RowSet<Row> rows, String brought) {
        List<Fortune> fortunes = new ArrayList<>(List.of(new Fortune(0, brought)));
        rows.forEach(row -> fortunes.add(new Fortune(row.getInteger(0), row.getString(1))));
        fortunes.sort(Comparator.comparing(Fortune::message));
        return Map.of("fortunes", fortunes);
    }

    private Future<JsonArray> cached(RoutingContext ask) {
        List<JsonObject> worlds =
                numbers(ask, "ids").stream().map(id -> kept.get(id - 1)).toList();
        return Future.succeededFuture(new JsonArray(worlds));
    }

    private Future<JsonObject> upload(RoutingContext ask) {
        CRC32 sum = new CRC32();
        long[] bytes = {0};
        ask.request().handler(chunk -> {
            bytes[0] += chunk.length();
            sum.update(chunk.getBytes());
        });
        return ask.request().end().map(end -> new JsonObject()
                .put("bytes", bytes[0])
                .put("crc32", String.format("%08x", sum.getValue())));
    }

    private Future<JsonObject> delay(RoutingContext ask) {
        long ms = Long.parseLong(ask.queryParams().get("ms"));
        return vertx.timer(ms, TimeUnit.MILLISECONDS).map(end -> new JsonObject().put("ms", ms));
    }

    public static void main(String[] args) {
        if (args.length > 0 && args[0].equals("--version")) {
            System.out.println("Vert.x " + VersionCommand.getVersion() + ", "
                    + System.getProperty("java.vm.name") + " " + Runtime.version());
            return;
        }
        Vertx vertx = Vertx.vertx(new VertxOptions().setEventLoopPoolSize(CPUS));
        vertx.deployVerticle(Server.class, new DeploymentOptions().setInstances(CPUS))
                .onFailure(cause -> {
                    System.err.println(cause);
                    System.exit(1);
                });
    }
}
