//! Tests the page in a real browser: sorting, tooltips, hiding and copying. The page writes no
//! error to the console and sends no request.

use crate::page::{EVIL, explained, page_of};
use crate::scene::many;
use hotlap_testkit::{Browser, Scene, until};
use serde_json::json;

#[test]
fn the_page_sorts_points_hides_and_copies_and_asks_nothing_of_anybody() {
    let Some(browser) = Browser::open(1280, false) else { return };
    let (folder, mut scene) = (Scene::new(), many(4));
    scene.experiment.participants[3].name = EVIL.to_owned();
    folder.write("page.html", page_of(&scene));
    browser.show(&folder.path("page.html"));

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
    let Some(browser) = Browser::open(500, true) else { return };
    let folder = Scene::new();
    folder.write("page.html", page_of(&many(9)));
    let inner = "<iframe src='page.html' style='width:390px;height:800px;border:0'></iframe>";
    folder.write("frame.html", inner);
    browser.show(&folder.path("frame.html"));
    browser.post("/frame", &json!({ "id": 0 }));
    let wide = "document.documentElement.scrollWidth <= innerWidth";
    assert_eq!(browser.text(wide), "true");
    let paper = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.text(paper), "rgb(15, 19, 24)", "dark where the system is");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn a_flame_graph_is_searched_and_enlarged() {
    let Some(browser) = Browser::open(1280, false) else { return };
    let folder = Scene::new();
    folder.write("page.html", page_of(&explained()));
    browser.show(&folder.path("page.html"));
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
    // Scrolling hides the tooltip, and the scroll event comes with the next frame.
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
    assert_eq!(copied, "hotlap run 'python3 app.py'");
}

fn tells_each_lap(browser: &Browser) {
    let rows = "document.querySelectorAll('#each tbody tr').length";
    assert_eq!(browser.text(rows), "0");
    browser.click("#each summary");
    // The toggle event comes after the click, and the next command may arrive before the event.
    until("laps are shown", || browser.text(rows) != "0");
    assert_eq!(
        browser.text(rows),
        "162",
        "3 restarts, twice in each round: 4 servers in 6 rounds, control in two, ceiling in one"
    );
    browser.run(
        "const s = document.querySelector('#each select'); s.value = '3';\
         s.dispatchEvent(new Event('change'))",
    );
    assert_eq!(browser.text(rows), "36");
    assert_eq!(browser.text("document.querySelector('#each tbody td').textContent"), EVIL);
}
