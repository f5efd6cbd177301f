//! The page in a real browser, driven over WebDriver: it sorts, points, hides and copies, writes no
//! error to its console, and asks nothing of anybody.
//!
//! Skipped, loudly, where `chromium` or `chromedriver` is missing: `apt-get install chromium
//! chromium-driver`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hotlap::model::Question;
use hotlap::render::{Format, render};
use hotlap::report::Report;
use hotlap_bench::explain::Explain;
use serde_json::{Value, json};

use super::scenes::Scene;
use super::{EVIL, profiled};

/// A browser, ended with the test.
struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// A browser of this width, or nothing where there is none.
    fn open(width: u32, dark: bool) -> Option<Self> {
        let chromium = ["chromium", "chromium-browser", "google-chrome"]
            .into_iter()
            .find(|name| is_there(name) && is_there("chromedriver"))?;
        let profile = tempfile::tempdir().unwrap();
        let mut driver = Command::new("chromedriver")
            .args(["--port=0", "--allowed-ips=127.0.0.1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let port = port_of(&mut driver);
        let mut browser = Self { driver, port, session: String::new(), _profile: profile };
        let mut args: Vec<String> = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ]
        .map(str::to_owned)
        .into();
        args.push(format!("--user-data-dir={}", browser._profile.path().display()));
        args.push(format!("--window-size={width},900"));
        if dark {
            args.push("--blink-settings=preferredColorScheme=0".to_owned());
        }
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "binary": path_of(chromium)?, "args": args },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        }}});
        let made = browser.ask("POST", "/session", &wanted);
        browser.session = made["sessionId"].as_str().expect("a session").to_owned();
        Some(browser)
    }

    /// One command of WebDriver (W3C, "WebDriver", section 6): JSON over HTTP.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
        let text = if method == "GET" { String::new() } else { body.to_string() };
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
            self.port,
            text.len()
        )
        .unwrap();
        let mut reader = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        reader.read_exact(&mut answer).unwrap();
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        assert!(answer["value"]["error"].is_null(), "{path}: {answer}");
        answer["value"].clone()
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}{path}", self.session), body)
    }

    fn show(&self, page: &std::path::Path) {
        self.post("/url", &json!({ "url": format!("file://{}", page.display()) }));
    }

    /// What a script returns.
    fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Runs a script, and waits until it calls its argument.
    fn wait(&self, script: &str) {
        self.post("/execute/async", &json!({ "script": script, "args": [] }));
    }

    fn text(&self, script: &str) -> String {
        self.run(&format!("return String({script})")).as_str().unwrap().to_owned()
    }

    fn element(&self, css: &str) -> String {
        let found = self.post("/element", &json!({ "using": "css selector", "value": css }));
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    fn click(&self, css: &str) {
        let element = self.element(css);
        self.run(&format!("document.querySelector({css:?}).scrollIntoView({{block:'center'}})"));
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// Moves the pointer onto a place of the window.
    fn point(&self, x: f64, y: f64) {
        let moves = json!([{ "type": "pointerMove", "duration": 0, "x": x as i64, "y": y as i64 }]);
        self.post(
            "/actions",
            &json!({ "actions": [{
                "type": "pointer", "id": "mouse",
                "parameters": { "pointerType": "mouse" }, "actions": moves,
            }]}),
        );
    }

    fn keys(&self, css: &str, keys: &str) {
        let element = self.element(css);
        self.post(&format!("/element/{element}/value"), &json!({ "text": keys }));
    }

    /// Complaints in the console, and addresses that were asked for beside the page's own.
    fn complaints(&self) -> Vec<String> {
        let of = |kind: &str| self.post("/se/log", &json!({ "type": kind }));
        let mut all: Vec<String> = of("browser")
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| format!("console: {}", entry["message"]))
            .collect();
        for entry in of("performance").as_array().unwrap() {
            let event: Value = serde_json::from_str(entry["message"].as_str().unwrap()).unwrap();
            let event = &event["message"];
            let url = &event["params"]["request"]["url"];
            let asked = event["method"] == "Network.requestWillBeSent";
            // The browser's own first tab asks for its own parts.
            let document = event["params"]["documentURL"].as_str();
            let ours = document.is_some_and(|from| from.starts_with("file:"));
            let own = ["file:", "data:"].iter().any(|s| url.as_str().unwrap_or("").starts_with(s));
            if asked && ours && !own {
                all.push(format!("request: {url}"));
            }
        }
        all
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            self.ask("DELETE", &format!("/session/{}", self.session), &json!({}));
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn path_of(name: &str) -> Option<String> {
    let folders = std::env::var_os("PATH")?;
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(name));
    paths.find(|path| path.is_file()).map(|path| path.display().to_string())
}

fn is_there(name: &str) -> bool {
    path_of(name).is_some()
}

/// The driver says which port it took: `… started successfully on port 41234.`
fn port_of(driver: &mut Child) -> u16 {
    let mut lines = BufReader::new(driver.stdout.take().unwrap());
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "chromedriver ended early");
        let digits = line.trim().trim_end_matches('.').rsplit(' ').next().unwrap_or_default();
        if let (true, Ok(port)) = (line.contains("successfully on port"), digits.parse()) {
            // Read on, so that it never waits for a full pipe.
            std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
            return port;
        }
    }
}

#[test]
fn the_page_sorts_points_hides_and_copies_and_asks_nothing_of_anybody() {
    let Some(browser) = Browser::open(1280, false) else {
        eprintln!("SKIPPED: no chromium and chromedriver here: apt-get install chromium-driver");
        return;
    };
    let mut scene = Scene { published: true, ..Scene::of(4) };
    scene.names[3] = EVIL.to_owned();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    std::fs::write(&path, render(&Report::of(&scene.run()), Format::Html)).unwrap();
    browser.show(&path);

    sorts(&browser);
    points(&browser);
    hides(&browser);
    copies(&browser);
    tells_each_lap(&browser);

    browser.click("#theme");
    assert_eq!(browser.text("document.documentElement.dataset.theme"), "dark");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn on_a_phone_nothing_is_wider_than_the_window() {
    let Some(browser) = Browser::open(500, true) else {
        eprintln!("SKIPPED: no chromium and chromedriver here: apt-get install chromium-driver");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    std::fs::write(&path, render(&Report::of(&Scene::of(9).run()), Format::Html)).unwrap();
    let frame = folder.path().join("frame.html");
    let inner = "<iframe src='page.html' style='width:390px;height:800px;border:0'></iframe>";
    std::fs::write(&frame, inner).unwrap();
    browser.show(&frame);
    browser.post("/frame", &json!({ "id": 0 }));
    let wide = "document.documentElement.scrollWidth <= innerWidth";
    assert_eq!(browser.text(wide), "true");
    let paper = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.text(paper), "rgb(15, 19, 24)", "dark where the system is");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_flame_graph_is_searched_and_enlarged() {
    let Some(browser) = Browser::open(1280, false) else {
        eprintln!("SKIPPED: no chromium and chromedriver here: apt-get install chromium-driver");
        return;
    };
    let (question, explain) = (Question::Explain, Explain::Only);
    let scene = Scene { question, explain, company: false, script: profiled, ..Scene::of(2) };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    std::fs::write(&path, render(&Report::of(&scene.run()), Format::Html)).unwrap();
    browser.show(&path);
    let search = "const field = document.querySelector('.search input'); field.value = 'PARSE';\
                  field.dispatchEvent(new Event('input'));";
    browser.run(search);
    assert_eq!(browser.text("document.querySelector('.search output').textContent"), "1 found");
    let hit = "document.querySelector('.flame .hit')";
    assert_eq!(browser.text(&format!("{hit}.textContent")), "parse");
    let share = format!("parseFloat({hit}.style.width) < 99");
    assert_eq!(browser.text(&share), "true");
    browser.click(".flame .hit");
    assert_eq!(browser.text(&format!("{hit}.style.width")), "100%");
    assert_eq!(browser.text("document.querySelectorAll('.flame [hidden]').length"), "1");
    browser.click(".flame div");
    assert_eq!(browser.text("document.querySelectorAll('.flame [hidden]').length"), "0");
    assert_eq!(browser.text(&share), "true");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

fn names(browser: &Browser) -> Vec<String> {
    let script = "return [...document.querySelectorAll('.sortable tbody th.name')]\
                  .map(n => n.childNodes[1].textContent)";
    let names = browser.run(script);
    names.as_array().unwrap().iter().map(|n| n.as_str().unwrap().to_owned()).collect()
}

fn sorts(browser: &Browser) {
    let by_rank = names(browser);
    assert_eq!((by_rank[0].as_str(), by_rank[4].as_str()), ("go/net-http", "ceiling"));
    browser.click(".sortable thead th:nth-child(3) button");
    let slowest_first = names(browser);
    assert_eq!((slowest_first[0].as_str(), slowest_first[4].as_str()), (EVIL, "ceiling"));
    browser.click(".sortable thead th:nth-child(3) button");
    assert_eq!(names(browser)[0], "ceiling");
    let sorted = "document.querySelector('thead th:nth-child(3)').getAttribute('aria-sort')";
    assert_eq!(browser.text(sorted), "descending");
    browser.keys(".sortable thead th:nth-child(1) button", "\u{E007}");
    assert_eq!(names(browser), by_rank);
}

fn points(browser: &Browser) {
    // A scroll hides what is told, and its event comes with the frame after it.
    browser.wait(
        "document.querySelector('figure').scrollIntoView({block:'center'});\
         requestAnimationFrame(() => requestAnimationFrame(arguments[0]))",
    );
    let place = browser.run(
        "const f = document.querySelector('figure'), svg = f.querySelector('svg');\
         const [x, y] = JSON.parse(f.querySelector('script').textContent)[1];\
         const p = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());\
         return [p.x, p.y]",
    );
    browser.point(place[0].as_f64().unwrap(), place[1].as_f64().unwrap());
    let told = browser.text("document.querySelector('#tip').innerText");
    assert!(told.starts_with("node/http:cluster\n41,"), "{told}");
    browser.keys("figure", "\u{E014}");
    let told = browser.text("document.querySelector('#tip').innerText");
    assert!(told.starts_with("rust/axum\n"), "{told}");
    browser.keys("figure", "\u{E00C}");
    assert_eq!(browser.text("document.querySelector('#tip').hidden"), "true");
}

fn hides(browser: &Browser) {
    let drawn = "[...document.querySelectorAll('svg [data-group=\"1\"]')]\
                 .filter(g => getComputedStyle(g).display !== 'none').length";
    assert_ne!(browser.text(drawn), "0");
    browser.click(".legend button[data-server=\"1\"]");
    assert_eq!(browser.text(drawn), "0");
    let pressed = "document.querySelector('.legend [data-server=\"1\"]').ariaPressed";
    assert_eq!(browser.text(pressed), "false");
    browser.click(".legend button[data-server=\"1\"]");
    assert_ne!(browser.text(drawn), "0");
}

fn copies(browser: &Browser) {
    browser.run(
        "Object.defineProperty(navigator, 'clipboard', { value: {\
         writeText: async (text) => { window.copied = text; } } })",
    );
    browser.click("#copy");
    let copied = browser.text("window.copied");
    assert!(copied.starts_with("hotlap run go/net-http node/http:cluster"), "{copied}");
}

fn tells_each_lap(browser: &Browser) {
    let rows = "document.querySelectorAll('#each tbody tr').length";
    assert_eq!(browser.text(rows), "0");
    browser.click("#each summary");
    // The toggle event comes after the click; the next command may be sooner.
    for _ in 0..300 {
        if browser.text(rows) != "0" {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(
        browser.text(rows),
        "156",
        "3 restarts, twice in each round: 4 servers in 6 rounds, control and ceiling in one"
    );
    browser.run(
        "const s = document.querySelector('#each select'); s.value = '3';\
         s.dispatchEvent(new Event('change'))",
    );
    assert_eq!(browser.text(rows), "36");
    assert_eq!(browser.text("document.querySelector('#each tbody td').textContent"), EVIL);
}
