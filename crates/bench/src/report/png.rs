//! A figure as PNG, for programs without SVG support.

use resvg::{tiny_skia, usvg};

use super::svg::{PAPER, draw};
use crate::report::figure::Figure;

/// Pixels of the image for each pixel of the figure.
const SCALE: f32 = 2.0;

/// Returns the figure as PNG, in its light colors.
///
/// # Errors
/// The machine has no fonts, or the library fails.
pub fn render(figure: &Figure) -> Result<Vec<u8>, String> {
    let mut options = usvg::Options::default();
    options.fontdb_mut().load_system_fonts();
    if options.fontdb.is_empty() {
        return Err("this machine has no fonts; install one, such as fonts-dejavu-core".to_owned());
    }
    let svg = light(&draw(figure));
    let tree = usvg::Tree::from_str(&svg, &options).map_err(|error| error.to_string())?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or("an empty figure")?;
    let mut image = tiny_skia::Pixmap::new(size.width(), size.height()).ok_or("an empty figure")?;
    let paper =
        PAPER.strip_prefix('#').and_then(|hex| u32::from_str_radix(hex, 16).ok()).unwrap_or(0xff_ffff);
    let [_, red, green, blue] = paper.to_be_bytes();
    image.fill(tiny_skia::Color::from_rgba8(red, green, blue, 255));
    resvg::render(&tree, tiny_skia::Transform::from_scale(SCALE, SCALE), &mut image.as_mut());
    image.encode_png().map_err(|error| error.to_string())
}

/// Replaces each `var(--name, color)` by its color: the library knows no CSS variables.
fn light(svg: &str) -> String {
    let mut parts = svg.split("var(--");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let color = part.split_once(", ").and_then(|(_, rest)| rest.split_once(')'));
        if let Some((color, rest)) = color {
            plain.push_str(color);
            plain.push_str(rest);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hashcast::Simulation;
    use crate::report::figure::of_simulation;

    #[test]
    fn a_figure_becomes_a_png() {
        let simulation = Simulation { interval_seconds: 1.0, duration_seconds: 6.0, ..Simulation::papers() };
        let png = match render(&of_simulation("title", &simulation.run().unwrap(), 1)) {
            Ok(png) => png,
            Err(why) => {
                assert!(why.contains("no fonts"), "{why}");
                println!("skipped: {why}");
                return;
            }
        };
        // PNG (third edition) §5.2: the signature.
        assert_eq!(png[..8], [0x89, b'P', b'N', b'G', 13, 10, 26, 10]);
        assert!(png.len() > 5000, "{} bytes", png.len());
    }

    #[test]
    fn variables_become_their_colors() {
        assert_eq!(light("fill=\"var(--ink, #123456)\" x"), "fill=\"#123456\" x");
    }
}
