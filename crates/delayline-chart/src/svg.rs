//! Elements, and the paths of lines.

use std::fmt::{self, Display, Write as _};

/// Elements of SVG as text, one after the other. Texts and values are escaped, so that no text can
/// leave its element.
#[derive(Clone, Debug, Default)]
pub struct Svg {
    text: String,
    open: Vec<&'static str>,
}

/// An attribute: its name and value.
type Attribute<'a> = (&'a str, &'a dyn Display);

impl Svg {
    /// Begins an element. What follows is inside of it, until [`close`](Self::close).
    pub fn open(&mut self, name: &'static str, attributes: &[Attribute<'_>]) -> &mut Self {
        self.tag(name, attributes);
        self.text.push_str(">\n");
        self.open.push(name);
        self
    }

    /// Ends the element that was begun last.
    pub fn close(&mut self) -> &mut Self {
        if let Some(name) = self.open.pop() {
            self.text.push_str("</");
            self.text.push_str(name);
            self.text.push_str(">\n");
        }
        self
    }

    /// Writes an element without content.
    pub fn leaf(&mut self, name: &'static str, attributes: &[Attribute<'_>]) -> &mut Self {
        self.tag(name, attributes);
        self.text.push_str("/>\n");
        self
    }

    /// Writes an element that has only text, such as `text` or `title`.
    pub fn words(
        &mut self,
        name: &'static str,
        attributes: &[Attribute<'_>],
        words: impl Display,
    ) -> &mut Self {
        self.tag(name, attributes);
        self.text.push('>');
        self.escaped(&words);
        self.text.push_str("</");
        self.text.push_str(name);
        self.text.push_str(">\n");
        self
    }

    /// Ends all elements, and returns the text.
    #[must_use]
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.close();
        }
        self.text
    }

    fn tag(&mut self, name: &str, attributes: &[Attribute<'_>]) {
        self.text.push('<');
        self.text.push_str(name);
        for (name, value) in attributes {
            self.text.push(' ');
            self.text.push_str(name);
            self.text.push_str("=\"");
            self.escaped(value);
            self.text.push('"');
        }
    }

    fn escaped(&mut self, value: &dyn Display) {
        // Writing to a text cannot fail.
        let _ = write!(Escaping(&mut self.text), "{value}");
    }
}

/// Writes text without the characters that mean something in XML and HTML.
struct Escaping<'a>(&'a mut String);

impl fmt::Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

/// A part of a width as a value of an attribute: `12.5%`.
#[must_use]
pub fn percent(part: f64) -> String {
    format!("{}%", number(part * 100.0))
}

/// Up to three digits after the point, and none that say nothing.
fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// The path of a line through points. A point that is missing leaves a gap; a point alone is a dot,
/// if line ends are round.
#[must_use]
pub fn line(points: impl IntoIterator<Item = Option<(f64, f64)>>) -> String {
    let (mut path, mut is_drawn) = (String::new(), false);
    let mut points = points.into_iter().peekable();
    while let Some(point) = points.next() {
        if let Some((x, y)) = point {
            let kind = if is_drawn { 'L' } else { 'M' };
            let _ = write!(path, "{kind}{} {}", number(x), number(y));
            if !is_drawn && points.peek().is_none_or(Option::is_none) {
                path.push_str("h0");
            }
        }
        is_drawn = point.is_some();
    }
    path
}

/// The path around columns that stand side by side on a base: for each its left edge, right edge and
/// top. Columns without height are left out.
#[must_use]
pub fn outline(base: f64, columns: impl IntoIterator<Item = (f64, f64, f64)>) -> String {
    let (mut path, mut end) = (String::new(), None);
    for (left, right, top) in columns.into_iter().filter(|(_, _, top)| *top < base) {
        if end != Some(left) {
            if end.is_some() {
                let _ = write!(path, "V{}", number(base));
            }
            let _ = write!(path, "M{} {}", number(left), number(base));
        }
        let _ = write!(path, "V{}H{}", number(top), number(right));
        end = Some(right);
    }
    if end.is_some() {
        let _ = write!(path, "V{}", number(base));
    }
    path
}

/// Defines hatching, for shapes whose `fill` is `url(#id)`. The lines have a class, so that a page
/// colours them.
pub fn hatching(svg: &mut Svg, id: &str, class: &str) {
    let size: &dyn Display = &7;
    svg.open("defs", &[]);
    svg.open(
        "pattern",
        &[
            ("id", &id),
            ("width", size),
            ("height", size),
            ("patternUnits", &"userSpaceOnUse"),
            ("patternTransform", &"rotate(45)"),
        ],
    );
    svg.leaf("path", &[("class", &class), ("d", &"M0 0V7")]);
    svg.close().close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_leaves_its_element() {
        let hostile = "</title><script a=\"1\">&";
        let mut svg = Svg::default();
        svg.open("svg", &[("aria-label", &hostile)]).words(
            "title",
            &[("class", &hostile)],
            hostile,
        );
        hatching(&mut svg, "h", "lines");
        svg.open("g", &[]);
        let text = svg.finish();
        assert!(!text.contains("<script") && !text.contains("a=\"1"), "{text}");
        let escaped = "&lt;/title&gt;&lt;script a=&quot;1&quot;&gt;&amp;";
        assert_eq!(text.matches(escaped).count(), 3, "{text}");
        assert!(text.ends_with("<g>\n</g>\n</svg>\n") && text.contains("</pattern>\n</defs>\n"));
        assert!(Svg::default().close().clone().finish().is_empty());
    }

    #[test]
    fn numbers_have_no_digits_that_say_nothing() {
        assert_eq!(
            [0.5, 1.0 / 3.0, -0.000_001, 1.0].map(percent),
            ["50%", "33.333%", "0%", "100%"]
        );
    }

    #[test]
    fn a_line_has_the_gaps_of_its_points() {
        let at = |x: f64| Some((x, 10.0 - x));
        assert_eq!(line([at(0.0), at(1.5), None, at(3.0), None]), "M0 10L1.5 8.5M3 7h0");
        assert_eq!(line([None, at(1.0)]), "M1 9h0");
        assert_eq!(line([]), "");
    }

    #[test]
    fn columns_side_by_side_have_one_outline() {
        let columns = [(0.0, 1.0, 4.0), (1.0, 2.0, 2.0), (2.0, 3.0, 9.0), (3.0, 4.0, 1.0)];
        assert_eq!(outline(9.0, columns), "M0 9V4H1V2H2V9M3 9V1H4V9");
        assert_eq!(outline(9.0, [(0.0, 1.0, 9.0)]), "");
    }
}
