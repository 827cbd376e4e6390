//! The page of a report in a browser: narrow and wide, light and dark.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::reports::result;
use crate::{bench, printed};

/// The browser, of the package with this name.
const BROWSER: &str = "chromium-headless-shell";
/// Widths in pixels: the narrowest of phones (WCAG 2.2, 1.4.10 Reflow), usual phones, and a screen.
const WIDTHS: [u32; 3] = [320, 390, 1280];
/// Least contrast of text (WCAG 2.2, 1.4.3).
const CONTRAST_MIN: f64 = 4.5;

/// Collects errors, from before anything else is loaded.
const COLLECT: &str = "<script>const failures = [];\
    addEventListener('error', event => failures.push(String(event.message || event.target.tagName)), true);\
    </script>";
/// Opens everything that is folded, and makes what a test needs the title of the page.
const TELL: &str = "<script>\
    document.querySelectorAll('details').forEach(details => details.open = true);\
    const color = (of, name) => getComputedStyle(of)[name];\
    const texts = [...document.querySelectorAll('body, h1, h2, p, dt, dd, td, th, summary, li, pre')];\
    document.title = JSON.stringify({\
        failures, width: innerWidth, needed: document.documentElement.scrollWidth,\
        paper: color(document.body, 'backgroundColor'),\
        texts: [...new Set(texts.map(text => color(text, 'color')))],\
        labels: [...new Set([...document.querySelectorAll('svg text')].map(text => color(text, 'fill')))],\
        folded: document.querySelectorAll('details').length,\
    });</script>";

/// Returns what the page tells at a width, with the colors that the user prefers.
fn look(page: &Path, width: u32, is_dark: bool) -> Value {
    // Values of Chromium's setting: 0 is dark, 1 is light.
    let scheme = u8::from(!is_dark);
    let output = Command::new(BROWSER)
        .args(["--no-sandbox", "--disable-gpu", "--dump-dom"])
        .arg(format!("--window-size={width},800"))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg(page)
        .output()
        .expect("the browser starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let title = text.split("<title>").nth(1).and_then(|rest| rest.split("</title>").next());
    let title = title.expect("a title").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    serde_json::from_str(&title).unwrap_or_else(|error| panic!("{error}: {title}"))
}

/// Returns the relative luminance of `rgb(R, G, B)` (WCAG 2.2).
fn luminance(color: &str) -> f64 {
    let numbers = color.trim_start_matches("rgb(").trim_end_matches(')').split(", ");
    let linear = |number: &str| {
        let part: f64 = number.parse::<f64>().unwrap_or_else(|_| panic!("{color}: not opaque")) / 255.0;
        if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
    };
    numbers.map(linear).zip([0.2126, 0.7152, 0.0722]).map(|(part, weight)| part * weight).sum()
}

/// Writes a page with the scripts of this test into the directory: cases with long names and options, and all kinds of counters.
fn make_page(directory: &Path) -> std::path::PathBuf {
    let results = directory.join("results");
    std::fs::create_dir_all(&results).expect("a directory");
    let options = "rw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,acregmax=60,acdirmin=30,acdirmax=60,hard";
    for (number, target) in ["enfys", "a-server-with-a-name-of-many-words"].into_iter().enumerate() {
        for threads in [1, 16, 512] {
            let mut run = result(target, 1, 1000 * (number as u64 + 1));
            run["run"]["id"] = json!(format!("{target}-{threads}"));
            run["run"]["case"]["threads"] = json!(threads);
            run["requests"]["READ"] = json!({
                "requests": 1000, "retransmissions": 0, "timeouts": 0, "bytes_sent": 0, "bytes_received": 0,
                "queue_us": 0, "round_trip_us": 5000,
            });
            run["kernel"] = json!([{ "boot_id": "x", "mount": {
                "source": "server:/export", "point": "/mnt", "file_system": "nfs4", "options": options,
                "program_bytes": [0, 0], "server_bytes": [0, 0],
            } }]);
            let text = run.to_string();
            std::fs::write(results.join(format!("{target}-{threads}.json")), text).expect("a file");
        }
    }
    let page = directory.join("report.html");
    printed(&bench(&["report".as_ref(), results.as_os_str(), "--html".as_ref(), page.as_os_str()]));
    let text = std::fs::read_to_string(&page).expect("the page");
    let text = text.replacen("<head>", &format!("<head>{COLLECT}"), 1);
    std::fs::write(&page, text.replacen("</body>", &format!("{TELL}</body>"), 1)).expect("the page");
    page
}

#[test]
fn a_report_is_readable_narrow_and_wide_in_light_and_dark() {
    if Command::new(BROWSER).arg("--version").output().is_err() {
        assert!(std::env::var_os("CI").is_none(), "there is no {BROWSER}: cargo xtask setup installs it");
        println!("skipped: there is no {BROWSER}");
        return;
    }
    let dir = tempfile::tempdir().expect("a temporary directory");
    let page = make_page(dir.path());
    for width in WIDTHS {
        for is_dark in [false, true] {
            let told = look(&page, width, is_dark);
            let at = format!("{width} pixels, dark: {is_dark}: {told}");
            assert_eq!(told["failures"], json!([]), "{at}");
            assert_eq!(told["width"], width, "{at}");
            assert!(told["needed"].as_u64() <= Some(width.into()), "scrolls sideways: {at}");
            // Two measures have a table each, and each of six cases its counters.
            assert_eq!(told["folded"], 2 + 6, "{at}");
            let paper = luminance(told["paper"].as_str().expect("a color"));
            assert_eq!(paper < 0.5, is_dark, "{at}");
            for list in ["texts", "labels"] {
                let colors = told[list].as_array().expect("colors");
                assert!(!colors.is_empty(), "{at}");
                for color in colors {
                    let text = luminance(color.as_str().expect("a color"));
                    let contrast = (paper.max(text) + 0.05) / (paper.min(text) + 0.05);
                    assert!(contrast >= CONTRAST_MIN, "{color} has a contrast of {contrast:.1}: {at}");
                }
            }
        }
    }
}
