package hotlap;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.zip.CRC32;
import java.util.zip.CheckedInputStream;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootVersion;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.core.simple.JdbcClient;
import org.springframework.stereotype.Controller;
import org.springframework.ui.Model;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.ResponseBody;

/** Spring MVC with JdbcClient on HikariCP, and pages with Thymeleaf. */
@SpringBootApplication
@Controller
public class Application {
    record World(int id, int number) {}

    record Uploaded(long bytes, String crc32) {}

    record Fortune(int id, String message) {}

    private final JdbcClient client;
    private final JdbcTemplate template;
    private volatile Map<Integer, World> worlds;

    Application(JdbcClient client, JdbcTemplate template) {
        this.client = client;
        this.template = template;
    }

    public static void main(String[] args) {
        if (List.of(args).contains("--version")) {
            System.out.println("Spring Boot " + SpringBootVersion.getVersion() + " on Java " + Runtime.version());
            return;
        }
        SpringApplication.run(Application.class, args);
    }

    @GetMapping("/json")
    @ResponseBody
    Map<String, String> json(@RequestParam String name) {
        return Map.of("message", "Hello, " + name + "!");
    }

    @PostMapping("/upload")
    @ResponseBody
    Uploaded upload(InputStream body) throws IOException {
        CRC32 sum = new CRC32();
        long bytes = new CheckedInputStream(body, sum).transferTo(OutputStream.nullOutputStream());
        return new Uploaded(bytes, String.format("%08x", sum.getValue()));
    }

    @GetMapping("/delay")
    @ResponseBody
    Map<String, Integer> delay(@RequestParam int ms) throws InterruptedException {
        Thread.sleep(ms);
        return Map.of("ms", ms);
    }

    @GetMapping("/db")
    @ResponseBody
    World db(@RequestParam int id) {
        String sql = "SELECT id, number FROM world WHERE id = ?";
        return client.sql(sql).param(id).query((row, n) -> new World(row.getInt(1), row.getInt(2))).single();
    }

    @GetMapping("/queries")
    @ResponseBody
    List<World> queries(@RequestParam List<Integer> ids) {
        return ids.stream().map(this::db).toList();
    }

    @PostMapping("/updates")
    @ResponseBody
    List<World> updates(@RequestParam List<Integer> ids, @RequestParam List<Integer> numbers) {
        List<World> changed = IntStream.range(0, ids.size())
            .mapToObj(i -> new World(db(ids.get(i)).id(), numbers.get(i)))
            .toList();
        template.batchUpdate(
            "UPDATE world SET number = ? WHERE id = ?",
            changed.stream().map(world -> new Object[] {world.number(), world.id()}).toList());
        return changed;
    }

    @GetMapping("/cached")
    @ResponseBody
    List<World> cached(@RequestParam List<Integer> ids) {
        if (worlds == null) {
            worlds = client.sql("SELECT id, number FROM world").query(World.class).stream()
                .collect(Collectors.toMap(World::id, world -> world));
        }
        return ids.stream().map(worlds::get).toList();
    }

    @GetMapping("/fortunes")
    String fortunes(@RequestParam String text, Model model) {
        List<Fortune> fortunes = new ArrayList<>(client.sql("SELECT id, message FROM fortune")
            .query((row, n) -> new Fortune(row.getInt(1), row.getString(2))).list());
        fortunes.add(new Fortune(0, "Brought by the request: " + text));
        fortunes.sort(Comparator.comparing(Fortune::message));
        model.addAttribute("fortunes", fortunes);
        return "fortunes";
    }
}
