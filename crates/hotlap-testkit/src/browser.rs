//! A real browser, driven over WebDriver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

/// A browser that ends with the test.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: TempDir,
}

impl Browser {
    /// Opens a browser with a window of this width. Prints a message and returns `None` if Chromium
    /// or `chromedriver` is missing.
    #[expect(clippy::print_stderr, reason = "a test that is skipped must say so")]
    pub fn open(width: u32, dark: bool) -> Option<Self> {
        let chromium =
            ["chromium", "chromium-browser", "google-chrome"].into_iter().find_map(path_of);
        let (Some(chromium), Some(_)) = (chromium, path_of("chromedriver")) else {
            eprintln!("skipped: no chromium and chromedriver: apt-get install chromium-driver");
            return None;
        };
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
            "goog:chromeOptions": { "binary": chromium, "args": args },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        }}});
        let made = browser.ask("POST", "/session", &wanted);
        browser.session = made["sessionId"].as_str().expect("a session").to_owned();
        Some(browser)
    }

    /// Sends one command of WebDriver (W3C, "WebDriver", section 6) as JSON over HTTP.
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

    /// Sends one command to the session.
    pub fn post(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}{path}", self.session), body)
    }

    /// Opens a page.
    pub fn show(&self, page: &Path) {
        self.post("/url", &json!({ "url": format!("file://{}", page.display()) }));
    }

    /// Runs a script and returns its result.
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Runs a script and waits until the script calls the function in its argument.
    pub fn wait(&self, script: &str) {
        self.post("/execute/async", &json!({ "script": script, "args": [] }));
    }

    /// Returns the value of an expression as text.
    pub fn text(&self, script: &str) -> String {
        self.run(&format!("return String({script})")).as_str().unwrap().to_owned()
    }

    fn element(&self, css: &str) -> String {
        let found = self.post("/element", &json!({ "using": "css selector", "value": css }));
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    /// Clicks the first element that matches a CSS selector.
    pub fn click(&self, css: &str) {
        let element = self.element(css);
        self.run(&format!("document.querySelector({css:?}).scrollIntoView({{block:'center'}})"));
        self.post(&format!("/element/{element}/click"), &json!({}));
    }

    /// Moves the pointer to a point in the window.
    pub fn point(&self, x: f64, y: f64) {
        let moves = json!([{ "type": "pointerMove", "duration": 0, "x": x as i64, "y": y as i64 }]);
        self.post(
            "/actions",
            &json!({ "actions": [{
                "type": "pointer", "id": "mouse",
                "parameters": { "pointerType": "mouse" }, "actions": moves,
            }]}),
        );
    }

    /// Presses keys in the element that matches a CSS selector.
    pub fn keys(&self, css: &str, keys: &str) {
        let element = self.element(css);
        self.post(&format!("/element/{element}/value"), &json!({ "text": keys }));
    }

    /// Returns the messages in the console, and the page's requests for anything but local files.
    pub fn complaints(&self) -> Vec<String> {
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
            // The browser's own first tab requests parts of the browser.
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

/// Reads the port from the driver's output: `… started successfully on port 41234.`
fn port_of(driver: &mut Child) -> u16 {
    let mut lines = BufReader::new(driver.stdout.take().unwrap());
    loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "chromedriver ended early");
        let digits = line.trim().trim_end_matches('.').rsplit(' ').next().unwrap_or_default();
        if let (true, Ok(port)) = (line.contains("successfully on port"), digits.parse()) {
            // A thread reads the rest of the output, so that the driver never waits for a full
            // pipe.
            std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
            return port;
        }
    }
}
